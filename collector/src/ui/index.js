// Shows the named views of the collector as text.
"use strict";

const VIEWS = ["processes", "cpu-time-hot-methods", "hot-methods", "threads", "cpu-time-statistics"];
const text = document.getElementById("text");

async function show(name) {
  const answer = await fetch(`/api/v1/view/${name}?limit=50`);
  const body = await answer.text();
  text.textContent = answer.ok ? body : JSON.parse(body).error;
}

for (const name of VIEWS) {
  const link = document.createElement("a");
  link.href = `#${name}`;
  link.textContent = name;
  document.getElementById("views").append(link);
}

function follow() {
  const name = location.hash.slice(1);
  show(VIEWS.includes(name) ? name : VIEWS[0]).catch((error) => { text.textContent = String(error); });
}

addEventListener("hashchange", follow);
follow();
