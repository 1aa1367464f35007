// Keeps the page at what the server says: rows by key, in order, each replaced or added to as events tell.
"use strict";

(() => {
  const rows = document.getElementById("rows");
  const list = document.getElementById("sessions");

  if (list) {
    setInterval(async () => {
      if (document.hidden) return;
      try {
        const answer = await fetch(list.dataset.refresh);
        if (!answer.ok) return;
        const html = await answer.text();
        if (html !== list.dataset.shown) {
          const held = document.activeElement && list.contains(document.activeElement) ? document.activeElement.href : null;
          list.innerHTML = html;
          list.dataset.shown = html;
          if (held) [...list.querySelectorAll("a")].find((link) => link.href === held)?.focus();
        }
      } catch {
        // the server is away: the next try will tell
      }
    }, 3000);
  }
  if (!rows) return;

  const connection = document.getElementById("connection");
  const footer = document.getElementById("footer");
  const latest = document.getElementById("latest");
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const byKey = new Map([...rows.children].map((row) => [row.id, row]));

  const atEnd = () => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 80;
  const toEnd = () => window.scrollTo(0, document.documentElement.scrollHeight);

  const fragment = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  };

  const place = ({ key, before, html }) => {
    const row = fragment(html);
    const held = byKey.get(key);
    if (held) {
      const details = held.querySelector("details");
      const fresh = row.querySelector("details");
      if (details && fresh && details.dataset.touched) {
        fresh.open = details.open;
        fresh.dataset.touched = "yes";
      }
      const focused = held.contains(document.activeElement);
      held.replaceWith(row);
      if (focused) row.focus({ preventScroll: true });
    } else {
      const previous = before ? byKey.get(before) : null;
      if (previous) previous.after(row);
      else if (before === "") rows.prepend(row);
      else rows.append(row);
    }
    byKey.set(key, row);
    if (search.value) mark(row);
  };

  const append = ({ key, at, text }) => {
    const stream = byKey.get(key)?.querySelector(".stream");
    if (!stream) return false;
    const node = stream.firstChild || stream.appendChild(document.createTextNode(""));
    if (node.data.length !== at) return false;
    node.appendData(text);
    return true;
  };

  const keep = (keys) => {
    const wanted = new Set(keys);
    for (const [key, row] of byKey) {
      if (!wanted.has(key)) {
        row.remove();
        byKey.delete(key);
      }
    }
  };

  let position = Number(rows.dataset.position);
  let source = null;
  let again = 500;

  const open = (after) => {
    source = new EventSource(`${rows.dataset.events}?after=${after}`);
    const on = (name, act) =>
      source.addEventListener(name, (event) => {
        const follow = atEnd();
        const data = JSON.parse(event.data);
        if (event.lastEventId) position = Number(event.lastEventId);
        act(data);
        if (follow) toEnd();
        else if (name !== "header") latest.hidden = false;
      });
    on("row", place);
    on("text", (data) => {
      if (!append(data)) reopen(0); // a piece is missing: take everything anew
    });
    on("keys", ({ keys }) => keep(keys));
    on("header", (header) => {
      footer.textContent = header.footer;
      footer.dataset.state = header.state;
      if (header.title) {
        document.title = `${header.title} · twofold`;
        document.querySelector("h1").textContent = header.title;
      }
    });
    source.onopen = () => {
      connection.textContent = "live";
      connection.dataset.state = "live";
      again = 500;
    };
    source.onerror = () => {
      connection.textContent = "away";
      connection.dataset.state = "away";
      if (source.readyState === EventSource.CLOSED) {
        setTimeout(() => reopen(position), again);
        again = Math.min(again * 2, 10000);
      }
    };
  };

  const reopen = (after) => {
    source.close();
    open(after);
  };

  const mark = (row) => {
    const words = search.value.trim().toLowerCase();
    const hit = words !== "" && row.textContent.toLowerCase().includes(words);
    row.classList.toggle("hit", hit);
    row.classList.toggle("miss", words !== "" && !hit);
    if (hit) row.querySelector("details:not([open])")?.setAttribute("open", "");
    return hit;
  };

  search.addEventListener("input", () => {
    let hits = 0;
    for (const row of rows.children) hits += mark(row) ? 1 : 0;
    found.textContent = search.value.trim() ? `${hits} found` : "";
    rows.querySelector(".hit")?.scrollIntoView({ block: "center" });
  });

  rows.addEventListener("click", (event) => {
    const button = event.target.closest(".copy");
    if (button) {
      event.preventDefault();
      const text = button.closest("article").dataset.source;
      navigator.clipboard.writeText(text).then(
        () => {
          button.textContent = "copied";
          setTimeout(() => (button.textContent = "copy"), 1500);
        },
        () => (button.textContent = "not allowed"),
      );
      return;
    }
    const summary = event.target.closest("summary");
    if (summary) summary.parentElement.dataset.touched = "yes";
  });

  document.addEventListener("keydown", (event) => {
    if (event.target === search) {
      if (event.key === "Escape") {
        search.value = "";
        search.dispatchEvent(new Event("input"));
        search.blur();
      }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      search.focus();
    } else if (event.key === "j" || event.key === "k") {
      const all = [...rows.children];
      const here = all.indexOf(document.activeElement.closest("article"));
      const next = all[here < 0 ? (event.key === "j" ? 0 : all.length - 1) : here + (event.key === "j" ? 1 : -1)];
      next?.focus();
    } else if (event.key === "G") {
      toEnd();
    }
  });

  latest.addEventListener("click", () => {
    toEnd();
    latest.hidden = true;
  });
  window.addEventListener("scroll", () => {
    if (atEnd()) latest.hidden = true;
  });

  if (location.hash) byKey.get(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  else toEnd();
  open(position);
})();
