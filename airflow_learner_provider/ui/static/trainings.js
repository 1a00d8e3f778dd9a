import { age, ask, byId, element, number, outward, phase, repeat, row, runPath, taskPath, text } from "./common.js";

const PAGE = 50;
const asked = { search: "", phase: "", offset: 0 };

function pageOf(training) {
  const { dag_id, run_id, task_id, map_index } = training;
  return `training?${new URLSearchParams({ dag_id, run_id, task_id, map_index })}`;
}

function show(training) {
  const name = element("a", { href: pageOf(training) }, training.name);
  const mapped = Number(training.map_index) >= 0 ? `[${training.map_index}]` : "";
  return row(
    text(name),
    phase(training.phase),
    number(`${training.ready} / ${training.learners}`),
    number(age(training.created)),
    text(training.dag_id),
    outward(element("a", {}, training.task_id + mapped), taskPath(training)),
    text(outward(element("a", {}, training.run_id), runPath(training))),
    element("td", { title: training.message }, training.reason),
  );
}

function showPhases(phases) {
  const all = Object.values(phases).reduce((sum, count) => sum + count, 0);
  const chips = [["", `All ${all}`], ...Object.entries(phases).sort().map(([name, count]) => [name, `${name} ${count}`])];
  byId("phases").replaceChildren(
    ...chips.map(([name, text]) => {
      const chip = element("button", { type: "button", "aria-pressed": String(asked.phase === name) }, text);
      chip.onclick = () => ask_for({ phase: name, offset: 0 });
      return chip;
    }),
  );
}

async function refresh() {
  const query = new URLSearchParams({ ...asked, limit: PAGE });
  const found = await ask(`api/trainings?${query}`);
  byId("namespaces").textContent = `in ${found.namespaces.join(", ")}`;
  showPhases(found.phases);
  byId("rows").replaceChildren(...found.trainings.map(show));
  const last = asked.offset + found.trainings.length;
  byId("position").textContent = found.total ? `${asked.offset + 1} to ${last} of ${found.total}` : "No trainings";
  byId("previous").disabled = asked.offset === 0;
  byId("next").disabled = last >= found.total;
}

const again = repeat(refresh, 3000);

function ask_for(change) {
  Object.assign(asked, change);
  again();
}

byId("previous").onclick = () => ask_for({ offset: Math.max(0, asked.offset - PAGE) });
byId("next").onclick = () => ask_for({ offset: asked.offset + PAGE });
byId("search").oninput = () => ask_for({ search: byId("search").value.trim(), offset: 0 });
byId("filters").onsubmit = (event) => event.preventDefault();
