"use strict";
// The page is made by the server; this only fetches it anew when something was decided.
const box = document.getElementById("filter"), live = document.getElementById("live");
let busy = false, again = false;

async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    const response = await fetch("/debug/kopf?" + new URLSearchParams({ q: box.value }), { cache: "no-store" });
    if (response.ok) {
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      for (const open of document.querySelectorAll("details[open]")) {
        page.getElementById(open.id)?.setAttribute("open", "");
      }
      document.querySelector("main").replaceWith(document.adoptNode(page.querySelector("main")));
    }
  } catch { // the operator is away; EventSource tries again
  } finally {
    setTimeout(() => { busy = false; if (again) { again = false; refresh(); } }, 500);
  }
}

const events = new EventSource("/debug/kopf/events");
events.onopen = () => { live.textContent = "● live"; refresh(); };
events.onerror = () => { live.textContent = "○ no connection"; };
events.onmessage = refresh;
box.addEventListener("input", refresh);
box.form.addEventListener("submit", (event) => { event.preventDefault(); refresh(); });
box.form.querySelector("button").hidden = true;
setInterval(refresh, 10000);
