// Keeps the page at what the server says: rows by name, in order, each replaced or added to as events tell.
"use strict";

(() => {
  const $ = (id) => document.getElementById(id);

  // The one place where text becomes elements: fragments that the server made, in which nothing acts.
  const maker = { createHTML: (html) => html };
  const policy = window.trustedTypes ? window.trustedTypes.createPolicy("twofold", maker) : maker;
  const parsed = (html) => {
    const template = document.createElement("template");
    template.innerHTML = policy.createHTML(html);
    return template.content;
  };

  // Times

  const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60]];
  const spoken = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  const ago = (date) => {
    const seconds = (date - Date.now()) / 1000;
    for (const [unit, size] of UNITS) {
      if (-seconds >= size) return spoken.format(Math.trunc(seconds / size), unit);
    }
    return "just now";
  };
  const tellTimes = (within) => {
    for (const time of within.querySelectorAll("time")) {
      const date = new Date(time.dateTime);
      time.textContent = ago(date);
      time.title = date.toLocaleString();
    }
  };

  // The list of sessions

  const list = $("list");
  if (list) {
    let shown = null;
    let asking = false;
    const refresh = async () => {
      if (document.hidden || asking) return;
      asking = true;
      try {
        const answer = await fetch("sessions");
        if (!answer.ok) return;
        const html = await answer.text();
        if (html !== shown) {
          shown = html;
          const held = list.contains(document.activeElement) ? document.activeElement.href : null;
          list.replaceChildren(parsed(html));
          if (held) [...list.querySelectorAll("a")].find((link) => link.href === held)?.focus({ preventScroll: true });
        }
        tellTimes(list);
      } catch {
        // the server is away: the next try will tell
      } finally {
        asking = false;
      }
    };
    tellTimes(list);
    setInterval(refresh, 2000);
    document.addEventListener("visibilitychange", refresh);
    return;
  }

  // A session

  const rows = $("rows");
  if (!rows) return;
  const [search, found, latest, announcer, connection] =
    ["search", "found", "latest", "announcer", "connection"].map($);
  const session = rows.dataset.session;
  const byName = new Map([...rows.children].map((row) => [row.id, row]));
  let mark = rows.dataset.mark;

  // Where the reader is

  let pinned = true; // to the end, as long as nobody scrolls away from it
  const atEnd = () => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 16;
  const toEnd = () => {
    pinned = true;
    latest.hidden = true;
    window.scrollTo(0, document.documentElement.scrollHeight);
  };
  window.addEventListener("scroll", () => {
    pinned = atEnd();
    if (pinned) latest.hidden = true;
  }, { passive: true });
  new ResizeObserver(() => { if (pinned) toEnd(); }).observe(document.body);
  latest.addEventListener("click", () => focusRow(rows.lastElementChild, true));

  const focusRow = (row, end = false) => {
    if (!row) return;
    row.focus({ preventScroll: true });
    if (end) toEnd();
    else row.scrollIntoView({ block: row.offsetHeight > window.innerHeight / 2 ? "start" : "nearest" });
  };
  const toHash = () => {
    rows.querySelector(".linked")?.classList.remove("linked");
    const row = byName.get(location.hash.slice(1));
    if (!row) return false;
    row.querySelector("details")?.setAttribute("open", "");
    row.classList.add("linked");
    pinned = false;
    row.focus({ preventScroll: true });
    row.scrollIntoView();
    return true;
  };
  window.addEventListener("hashchange", toHash);

  // What a screen reader is told. What was taken back is not left standing here.

  let silence = 0;
  const announce = (words) => {
    announcer.textContent = words;
    clearTimeout(silence);
    silence = setTimeout(() => { announcer.textContent = ""; }, 5000);
  };
  const announceRow = (row) => {
    if (row.classList.contains("withdrawn")) announce("A message was withdrawn by the agent.");
    else if (row.classList.contains("agent")) {
      announce(`${row.getAttribute("aria-label")}: ${row.querySelector(".body").textContent.slice(0, 400)}`);
    }
  };

  // Rows

  const place = (fresh) => {
    const held = byName.get(fresh.id);
    const version = fresh.dataset.version;
    if (!held) {
      rows.append(fresh);
      byName.set(fresh.id, fresh);
      if (version) announceRow(fresh);
      watch(fresh);
      return;
    }
    const known = version !== "" && version === held.dataset.version;
    const better = ["plain", "bare"].some((lack) => held.classList.contains(lack) && !fresh.classList.contains(lack));
    if (known && !better) return;
    const streamed = held.dataset.version === "" && version !== "";
    keepingPlace(held, fresh, () => {
      held.className = `${fresh.className}${held.classList.contains("linked") ? " linked" : ""}`;
      held.setAttribute("aria-label", fresh.getAttribute("aria-label"));
      held.dataset.version = version;
      held.replaceChildren(...fresh.childNodes);
    });
    if (!known || streamed) announceRow(held);
    watch(held);
  };

  // Changes a row's content under a reader: what is unfolded, scrolled or has the focus stays so.
  const keepingPlace = (held, fresh, change) => {
    const [before, after] = [held.querySelector("details"), fresh.querySelector("details")];
    if (before && after) after.open = before.open;
    const scrolled = [...held.querySelectorAll("pre")].map((pre) =>
      pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4 ? Infinity : pre.scrollTop);
    const active = document.activeElement;
    const inside = active !== held && held.contains(active);
    const focused = ["summary", ".permalink", ".copy"].find((one) => inside && active.matches(one));
    change();
    [...held.querySelectorAll("pre")].forEach((pre, index) => {
      const place = scrolled[index];
      if (place) pre.scrollTop = Math.min(place, pre.scrollHeight);
    });
    if (inside) ((focused && held.querySelector(focused)) || held).focus({ preventScroll: true });
  };

  // Rows far from where the reader is are there as plain text. They are rendered when they come near.
  let near = [];
  const nearing = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      if (!isIntersecting) continue;
      nearing.unobserve(target);
      if (!near.length) setTimeout(render, 30);
      near.push(target);
    }
  }, { rootMargin: "1500px 0px" });
  const watch = (row) => {
    if (row.classList.contains("plain") && row.dataset.version) nearing.observe(row);
  };
  const render = async () => {
    const plain = near.filter((row) => row.isConnected && row.classList.contains("plain"));
    const names = plain.slice(-100).map((row) => encodeURIComponent(row.id)).join("+");
    near = [];
    if (!names) return;
    try {
      const answer = await fetch(`rows?id=${session}&row=${names}`);
      if (!answer.ok) return;
      for (const row of [...parsed(await answer.text()).children]) {
        // Meanwhile it may say something else, or have been withdrawn: then this is not to bring back what it said.
        if (byName.get(row.id)?.dataset.version === row.dataset.version) place(row);
      }
    } catch {
      // the server is away: it stays plain
    }
  };
  for (const row of rows.children) watch(row);

  const append = (name, at, text) => {
    const stream = byName.get(name)?.querySelector(".stream");
    if (!stream) return false;
    let length = 0;
    for (const node of stream.childNodes) length += node.data.length;
    if (length !== at) return false;
    const last = stream.lastChild;
    if (last && last.data.length < 60000) last.appendData(text);
    else stream.append(text);
    return true;
  };

  const order = (names) => {
    const wanted = new Set(names);
    for (const [name, row] of byName) {
      if (wanted.has(name)) continue;
      if (row.contains(document.activeElement)) search.focus({ preventScroll: true });
      row.remove();
      byName.delete(name);
    }
    names.forEach((name, index) => {
      const row = byName.get(name);
      if (row && rows.children[index] !== row) rows.insertBefore(row, rows.children[index]);
    });
  };

  const say = (element, words) => {
    if (element.textContent === words) return false;
    element.textContent = words;
    element.hidden = !words;
    return Boolean(words);
  };
  const head = (header) => {
    $("foot").dataset.state = header.state;
    say($("footer"), header.footer);
    say($("gaps"), header.gaps);
    const waits = "The agent waits for a permission";
    const asked = header.state !== "requires_action" ? "" : header.asked ? `${waits}: ${header.asked}` : `${waits}.`;
    if (say($("asked"), asked)) announce(asked);
    const title = header.title || rows.dataset.name;
    if (say($("title"), title)) document.title = `${title} · twofold`;
  };

  // The events

  let source = null;
  let gone = false;
  let pause = 500;
  let again = 0;

  const connected = (state, words) => {
    connection.dataset.state = state;
    if (connection.textContent !== words) connection.textContent = words;
  };

  const open = (after) => {
    clearTimeout(again);
    source?.close();
    source = new EventSource(`events?id=${session}&after=${after}`);
    source.onmessage = (event) => {
      let whole = true;
      for (const [what, ...rest] of JSON.parse(event.data)) {
        if (what === "row") place(parsed(rest[0]).firstElementChild);
        else if (what === "text") whole = append(...rest) && whole;
        else if (what === "rows") order(rest[0]);
        else if (what === "header") head(rest[0]);
      }
      if (!whole) {
        open(""); // a piece is missing: take everything anew
        return;
      }
      if (event.lastEventId) mark = event.lastEventId;
      if (!pinned) latest.hidden = false;
      if (search.value) findSoon();
    };
    source.addEventListener("gone", () => {
      gone = true;
      source.close();
      order([]);
      announcer.textContent = "";
      connected("away", "this session was deleted");
    });
    source.onopen = () => {
      pause = 500;
      connected("live", "live");
    };
    source.onerror = async () => {
      if (connection.dataset.state !== "away") connected("away", "away");
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      again = setTimeout(() => open(mark), pause);
      pause = Math.min(pause * 2, 10000);
      const answer = await fetch(`events?id=${session}`, { method: "HEAD" }).catch(() => null);
      const words = { 401: "open the printed link again", 404: "this session is no longer there" }[answer?.status];
      if (words) connected("away", words);
    };
  };

  // A page that nobody looks at lets go of its connection: a browser has few to one server.
  let hidden = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hidden);
    if (document.hidden) hidden = setTimeout(() => source.close(), 30000);
    else if (source.readyState === EventSource.CLOSED && !gone) open(mark);
  });

  // A page that is left keeps nothing to come back to: what it showed may be taken back meanwhile.
  window.addEventListener("pagehide", () => {
    source.close();
    announcer.textContent = "";
    order([]);
  });
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  // Search

  const highlights = window.Highlight && CSS.highlights ? CSS.highlights : null;
  let hits = [];
  let current = -1;
  let soon = 0;

  const ranges = (row, words) => {
    const made = [];
    const walker = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (node.parentElement.closest(".tools, h2")) continue;
      const text = node.data.toLowerCase();
      for (let at = text.indexOf(words); at >= 0; at = text.indexOf(words, at + words.length)) {
        if (at + words.length > node.data.length) break;
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + words.length);
        made.push(range);
      }
    }
    return made;
  };
  const holds = (row, words) =>
    [...row.querySelectorAll(".title, .status, .mark, .body")].some((one) => one.textContent.toLowerCase().includes(words));
  const find = () => {
    clearTimeout(soon);
    soon = 0;
    const words = search.value.trim().toLowerCase();
    const here = hits[current];
    for (const row of hits) row.classList.remove("hit", "current");
    hits = words ? [...rows.children].filter((row) => holds(row, words)) : [];
    for (const row of hits) row.classList.add("hit");
    highlights?.delete("found");
    if (highlights && hits.length) {
      const marked = hits.slice(-500).flatMap((row) => ranges(row, words));
      highlights.set("found", new Highlight(...marked.slice(-5000)));
    }
    current = hits.indexOf(here);
    told(words);
  };
  const findSoon = () => { soon ||= setTimeout(find, 200); };
  const told = (words) => {
    hits[current]?.classList.add("current");
    const count = hits.length || "none";
    const words_ = !words ? "" : current < 0 ? `${count} found` : `${current + 1} of ${hits.length}`;
    if (found.textContent !== words_) found.textContent = words_;
  };
  const step = (by) => {
    if (soon) find();
    if (!hits.length) return;
    hits[current]?.classList.remove("current");
    current = current < 0 ? (by > 0 ? 0 : hits.length - 1) : (current + by + hits.length) % hits.length;
    const row = hits[current];
    row.querySelector("details")?.setAttribute("open", "");
    pinned = false;
    row.scrollIntoView({ block: "center" });
    told(search.value);
  };
  search.addEventListener("input", findSoon);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      const row = hits[current];
      search.value = "";
      find();
      if (row) focusRow(row);
      else search.blur();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });

  // Copying

  const copy = async (button) => {
    const name = encodeURIComponent(button.closest("article").id);
    const source = fetch(`markdown?id=${session}&row=${name}`).then(async (answer) => {
      if (!answer.ok) throw new Error(answer.statusText);
      return new Blob([await answer.text()], { type: "text/plain" });
    });
    let words = "copied";
    try {
      if (navigator.clipboard) await navigator.clipboard.write([new ClipboardItem({ "text/plain": source })]);
      else if (!copiedByHand(await (await source).text())) words = "not allowed";
    } catch {
      words = "not copied";
    }
    button.textContent = words;
    announce(words);
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  };
  const copiedByHand = (text) => {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };
  rows.addEventListener("click", (event) => {
    const button = event.target.closest(".copy");
    if (button) copy(button);
  });

  // Keys

  const dialog = $("keys");
  const shortcuts = $("shortcuts");
  shortcuts.checked = localStorage.getItem("twofold-keys") !== "off";
  shortcuts.addEventListener("change", () => localStorage.setItem("twofold-keys", shortcuts.checked ? "on" : "off"));
  $("help").addEventListener("click", () => dialog.showModal());
  $("done").addEventListener("click", () => dialog.close());

  const inSight = () => [...rows.children].find((row) => row.getBoundingClientRect().bottom > 60) || rows.lastElementChild;
  const acts = {
    "/": () => search.focus(),
    "?": () => dialog.showModal(),
    j: (row) => focusRow(row ? row.nextElementSibling : inSight()),
    k: (row) => focusRow(row ? row.previousElementSibling : inSight()),
    o: (row) => {
      const details = row?.querySelector("details");
      if (details) details.open = !details.open;
    },
    c: (row) => row?.querySelector(".copy")?.click(),
    Home: () => focusRow(rows.firstElementChild),
    End: () => focusRow(rows.lastElementChild, true),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (event.target.closest("input, textarea, select")) return;
    const act = Object.hasOwn(acts, event.key) ? acts[event.key] : null;
    if (!act || (event.key.length === 1 && !shortcuts.checked)) return;
    event.preventDefault();
    act(document.activeElement.closest("#rows > article"));
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    focusRow(rows.lastElementChild, true);
  });

  if (!toHash()) toEnd();
  open(mark);
})();
