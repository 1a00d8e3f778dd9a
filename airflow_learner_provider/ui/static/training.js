import { AIRFLOW, age, ask, byId, element, number, outward, phase, repeat, row, taskPath, text } from "./common.js";

const query = new URLSearchParams(location.search);
const task = Object.fromEntries(["dag_id", "run_id", "task_id"].map((key) => [key, query.get(key) ?? ""]));
task.map_index = query.get("map_index") ?? "-1";

const inAirflow = `${AIRFLOW}api/v2/dags/${encodeURIComponent(task.dag_id)}/dagRuns/${encodeURIComponent(task.run_id)}/taskInstances/${encodeURIComponent(task.task_id)}`;
const mapped = Number(task.map_index) >= 0 ? `/${task.map_index}` : "";
const UNDER_WAY = ["scheduled", "queued", "running", "deferred", "restarting", "up_for_retry", "up_for_reschedule"];

let ordinal = 0;
let curve = [];

// What the task has left in Airflow, when the cluster has nothing of its training any more.
async function readOutcome() {
  for (const key of ["return_value", "outcome"]) {
    try {
      const found = await ask(`${inAirflow}/xcomEntries/${key}?map_index=${task.map_index}&deserialize=true`);
      if (found.value?.learners) return found.value;
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }
  return null;
}

function facts(entries) {
  byId("facts").replaceChildren(
    ...entries.filter(([, value]) => value).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );
}

const seconds = (value) => (value === null || value === undefined ? "" : `${value} s`);
// What is used comes as 480123456n and 701234Ki.
const readable = (quantity) =>
  quantity.replace(/^(\d+)n$/, (_, nano) => `${Math.ceil(nano / 1e6)}m`).replace(/^(\d+)Ki$/, (_, kibi) => `${Math.ceil(kibi / 1024)}Mi`);
const quantities = (values) =>
  Object.entries(values ?? {}).filter(([, value]) => value !== "0").map(([name, value]) => `${name} ${readable(value)}`).join(", ");
const stateOf = (learner) => learner.state ?? (learner.reason === "Completed" ? "Succeeded" : "Failed");

function showLearners(learners, usage) {
  byId("learners").replaceChildren(
    ...learners.map((learner) =>
      row(
        number(learner.ordinal),
        phase(stateOf(learner)),
        text(learner.node),
        number(learner.restarts),
        number(learner.exit_code),
        (learner.reason ?? "") + (learner.collateral ? " (collateral)" : ""),
        time(learner.started),
        time(learner.finished),
        quantities(usage?.[learner.ordinal]),
        text(learner.message, "message"),
      ),
    ),
  );
}

function time(stamp) {
  return stamp ? element("time", { datetime: stamp, title: stamp }, stamp.slice(11, 19)) : "";
}

function showEvents(events) {
  byId("happenings").hidden = events.length === 0;
  byId("events").replaceChildren(
    ...events.map((event) => {
      const made = row(
        time(event.time),
        event.learner === null ? "StatefulSet" : `learner ${event.learner}`,
        event.reason + (event.count > 1 ? ` (${event.count} times)` : ""),
        text(event.message, "message"),
      );
      made.className = event.type;
      return made;
    }),
  );
}

function showOrdinals(learners) {
  byId("ordinals").replaceChildren(
    ...learners.map((learner) => {
      const chip = element("button", { type: "button", "aria-pressed": String(learner.ordinal === ordinal) }, `Learner ${learner.ordinal}`);
      chip.onclick = () => {
        ordinal = learner.ordinal;
        again();
      };
      return chip;
    }),
  );
}

const short = (value) => String(Number(value.toPrecision(4)));

// One small curve a metric, drawn in a box of 100 by 100 that is stretched to its place.
function draw(name, points) {
  const steps = points.map(([step]) => step);
  const values = points.map(([, value]) => value);
  const [left, right] = [Math.min(...steps), Math.max(...steps)];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (step) => (right > left ? ((step - left) / (right - left)) * 100 : 50);
  const y = (value) => (high > low ? 96 - ((value - low) / (high - low)) * 92 : 50);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${name} by step`);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", points.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(2)} ${y(value).toFixed(2)}`).join(""));
  svg.append(path);
  const figure = element("figure");
  figure.append(
    element("figcaption", {}, element("b", {}, name), short(values.at(-1))),
    svg,
    element("div", { class: "ends" }, element("span", {}, `step ${left}`), element("span", {}, `${short(low)} to ${short(high)}`), element("span", {}, `step ${right}`)),
  );
  return figure;
}

function showCurve(rows) {
  const names = new Set(rows.flatMap((point) => Object.keys(point)));
  names.delete("step");
  byId("progress").hidden = names.size === 0;
  byId("curves").replaceChildren(
    ...[...names].map((name) => draw(name, rows.filter((point) => name in point).map((point) => [point.step, point[name]]))),
  );
}

async function showLog(training) {
  byId("logs").hidden = training === null || training.learner_rows.length === 0;
  if (byId("logs").hidden) return;
  showOrdinals(training.learner_rows);
  const found = await ask(`api/log?${new URLSearchParams({ ...task, ordinal, lines: 200 })}`).catch((error) => {
    if (error.status === 404) return { lines: [], curve: [] }; // it has just gone
    throw error;
  });
  const log = byId("log");
  const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 30;
  log.textContent = found.lines.join("\n");
  if (atEnd) log.scrollTop = log.scrollHeight;
  if (found.curve.length) curve = found.curve;
}

function showHead(shown, isHere) {
  byId("name").textContent = shown?.name ?? `${task.task_id} of ${task.dag_id}`;
  document.title = byId("name").textContent;
  byId("phase").replaceChildren(shown ? phase(shown.phase) : "not in the cluster");
  byId("message").hidden = !shown?.message;
  byId("message").textContent = shown?.message ?? "";
  facts([
    ["Reason", shown?.reason],
    ["Namespace", shown?.namespace],
    ["Age", isHere ? age(shown.created) : ""],
    ["Ready", isHere ? `${shown.ready} of ${shown.learners}` : ""],
    ["Queued", seconds(shown?.timings?.queued)],
    ["Until ready", seconds(shown?.timings?.ready)],
    ["Ran", seconds(shown?.timings?.run)],
    ["Try", isHere ? shown.try_number : ""],
    ["Started again", shown?.restarts?.length ? String(shown.restarts.length) : ""],
    ["Requests", quantities(shown?.resources?.requests)],
    ["Limits", quantities(shown?.resources?.limits)],
    ["Result", shown?.result ? JSON.stringify(shown.result) : ""],
  ]);
}

async function refresh() {
  const [found, instance] = await Promise.all([
    ask(`api/training?${new URLSearchParams(task)}`),
    ask(`${inAirflow}${mapped}`).catch((error) => (error.status === 404 ? null : Promise.reject(error))),
  ]);
  const isHere = found.training !== null;
  const outcome = isHere ? null : await readOutcome();
  const shown = found.training ?? outcome;
  showHead(shown, isHere);
  showLearners(shown ? (isHere ? shown.learner_rows : shown.learners) : [], found.usage);
  showEvents(shown?.events ?? []);
  await showLog(found.training);
  showCurve(outcome?.curve?.length ? outcome.curve : curve);
  byId("stop").hidden = !(found.may_stop && UNDER_WAY.includes(instance?.state));
}

// Stopping is Airflow's business: its own API marks the task, with the rights of who asks.
async function stop() {
  byId("stop").disabled = true;
  try {
    await ask(inAirflow + mapped, { method: "PATCH", body: JSON.stringify({ new_state: "failed" }) });
    await again();
  } finally {
    byId("stop").disabled = false;
  }
}

outward(byId("task"), taskPath(task));
byId("stop").onclick = () => byId("confirm").showModal();
byId("confirm").onclose = () => byId("confirm").returnValue === "stop" && stop();
const again = repeat(refresh, 3000);
