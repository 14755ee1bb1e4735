// Keys of all pages. Everything works without them.
(() => {
  "use strict";
  const dialog = () => document.getElementById("keys");
  const isTyping = (element) => element instanceof HTMLElement && element.matches("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
  let awaitsArea = false;

  const rows = () => [...document.querySelectorAll("[data-row]")];
  const move = (step) => {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.contains(document.activeElement));
    const row = all[Math.min(all.length - 1, Math.max(0, at + step))];
    const target = row.querySelector("a") ?? row.querySelector("button, input, summary") ?? row;
    target.focus();
    row.scrollIntoView({ block: "nearest" });
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (awaitsArea && /^[1-9]$/.test(event.key)) {
      document.querySelectorAll(".areas a")[Number(event.key) - 1]?.click();
    } else if (event.key === "?") {
      const keys = dialog();
      if (keys) keys.open ? keys.close() : keys.showModal();
    } else if (event.key === "/") {
      const first = document.querySelector(".filters input[type=search]") ?? document.getElementById("search");
      if (first) { event.preventDefault(); first.focus(); }
    } else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else {
      // A page's own keys: <button data-key="m"> is clicked by m.
      const key = `[data-key="${CSS.escape(event.key)}"]`;
      const owner = document.activeElement?.closest("[data-row]") ?? document;
      (owner.querySelector(key) ?? document.querySelector(`:not([data-row] *)${key}`))?.click();
    }
    awaitsArea = event.key === "g";
  });

  // <div id="list" data-live="/ui/live">: the part is loaded anew when something happened, while the page can be seen.
  let source = null;
  let timer = 0;
  const refresh = () => {
    timer = 0;
    const list = document.querySelector("[data-live]");
    if (!list || list.contains(document.activeElement) || !window.htmx) return;
    window.htmx.ajax("GET", location.href, { target: "#list", select: "#list", swap: "outerHTML" });
  };
  const follow = () => {
    const list = document.querySelector("[data-live]");
    if (!list || document.hidden) { source?.close(); source = null; return; }
    if (source) return;
    source = new EventSource(list.dataset.live);
    for (const name of ["session.updated", "observation.created", "job.updated", "reset"]) {
      source.addEventListener(name, () => { timer ||= window.setTimeout(refresh, 400); });
    }
  };
  document.addEventListener("visibilitychange", follow);
  follow();

  // Menus of rows: a click elsewhere and Escape close them.
  const closeMenus = (but) => document.querySelectorAll("details.dots[open]").forEach((menu) => { if (!menu.contains(but)) menu.open = false; });
  document.addEventListener("click", (event) => closeMenus(event.target));
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && document.querySelector("details.dots[open]");
    if (menu) { menu.open = false; menu.querySelector("summary").focus(); }
  });

  // <div class="command"><pre>…</pre></div>: a button that copies it, where the browser lets us.
  const addCopyButtons = () => document.querySelectorAll(".command:not(:has(button))").forEach((place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(place.querySelector("code").textContent);
      button.textContent = "Copied";
      window.setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    place.append(button);
  });
  if (navigator.clipboard) addCopyButtons();

  // What is chosen in a list: <input type=checkbox data-choose-all> chooses every box of its form.
  document.addEventListener("change", (event) => {
    const all = event.target;
    if (!(all instanceof HTMLInputElement) || !all.matches("[data-choose-all]")) return;
    all.form?.querySelectorAll("input[type=checkbox][name]").forEach((box) => { box.checked = all.checked; });
  });
})();
