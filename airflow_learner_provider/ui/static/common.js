// What both pages share. Texts reach the page as text, never as HTML.

// The plugin is mounted at <Airflow>/learners/.
export const AIRFLOW = location.pathname.slice(0, location.pathname.lastIndexOf("/learners/") + 1);

const theme = localStorage.getItem("theme")?.replaceAll('"', "");
if (theme === "dark" || theme === "light") document.documentElement.classList.add(theme);

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.map((child) => child ?? ""));
  return made;
}

export function row(...cells) {
  return element("tr", {}, ...cells.map((cell) => (cell instanceof HTMLTableCellElement ? cell : element("td", {}, cell ?? ""))));
}

export const number = (value) => element("td", { class: "number" }, String(value ?? ""));

export const text = (value, kind = "") => element("td", { class: `text ${kind}` }, value);

export const phase = (name) => element("span", { class: `phase ${name}` }, name);

export function taskPath(task) {
  const mapped = Number(task.map_index) >= 0 ? `/mapped/${task.map_index}` : "";
  return `${runPath(task)}/tasks/${encodeURIComponent(task.task_id)}${mapped}`;
}

export const runPath = (task) => `${AIRFLOW}dags/${encodeURIComponent(task.dag_id)}/runs/${encodeURIComponent(task.run_id)}`;

// Airflow shows the page in a sandboxed frame, which may not navigate Airflow itself. The pages of
// Airflow are of the same origin, so the link is followed in its document.
export function outward(link, href) {
  link.href = href;
  link.onclick = (event) => {
    if (window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const copy = window.parent.document.createElement("a");
    copy.href = href;
    window.parent.document.body.append(copy);
    copy.click();
    copy.remove();
  };
  return link;
}

export function age(since, until = Date.now()) {
  const seconds = Math.max(0, Math.round((until - Date.parse(since)) / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  const hours = Math.floor(seconds / 3600);
  return hours < 48 ? `${hours} h ${Math.floor((seconds % 3600) / 60)} min` : `${Math.floor(hours / 24)} d`;
}

export async function ask(path, options = {}) {
  const answer = await fetch(path, { headers: { Accept: "application/json", "Content-Type": "application/json" }, ...options });
  if (answer.ok) return answer.json();
  const said = await answer.json().catch(() => ({}));
  const words = { 401: "You are not logged in.", 403: "You have no right to this." };
  const error = new Error(words[answer.status] ?? (typeof said.detail === "string" ? said.detail : `${answer.status} ${answer.statusText}`));
  error.status = answer.status;
  throw error;
}

export function tell(error) {
  byId("trouble").hidden = !error;
  byId("trouble").textContent = error ? error.message : "";
}

// Repeats while somebody looks. One that has no right will not have it in three seconds either.
export function repeat(work, milliseconds) {
  let timer;
  const round = async () => {
    clearTimeout(timer);
    let goOn = true;
    if (!document.hidden) {
      try {
        goOn = (await work()) !== false;
        tell(null);
      } catch (error) {
        tell(error);
        goOn = error.status !== 401 && error.status !== 403;
      }
    }
    if (goOn) timer = setTimeout(round, milliseconds);
  };
  document.addEventListener("visibilitychange", () => document.hidden || round());
  round();
  return round;
}
