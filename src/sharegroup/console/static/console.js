// The console's only script: live values, times in the reader's zone, and a pause.
// Everything else of the console works without it.
"use strict";

const RETRY_MS = 5000;
const live = document.querySelector(".live");
const liveText = document.querySelector(".live-text");
const pause = document.querySelector(".pause");
const hasLiveParts = document.querySelector('[id^="live_"]') !== null;
let stream = null;
let isPaused = false;

// A moment in the reader's zone; its title has the same in UTC.
function showLocalTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.getAttribute("datetime"));
    if (!Number.isNaN(at.getTime())) {
      time.title = time.textContent;
      const isClock = time.classList.contains("clock");
      const local = at.toLocaleString(undefined, isClock
        ? { timeStyle: "medium" }
        : { dateStyle: "short", timeStyle: "medium" });
      // Beside, where there is room for it.
      const isBeside = at.getTimezoneOffset() !== 0 && time.closest(".facts") !== null;
      const isSameDay = at.toISOString().slice(8, 10) === String(at.getDate()).padStart(2, "0");
      const utc = isSameDay ? time.title.slice("2026-11-30 ".length) : time.title;
      time.textContent = isBeside ? `${local} (${utc})` : local;
    }
  }
}

function say(text, isLive) {
  liveText.textContent = text;
  live.classList.toggle("is-live", isLive);
}

// Whether the reader has selected text in an element, which a replacement would lose.
function hasSelection(element) {
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed && element.contains(selection.anchorNode);
}

// Replace the content of a part, and keep focus, the caret, open details and scroll positions.
function replacePart(id, html) {
  const part = document.getElementById(id);
  if (part === null || hasSelection(part)) return;
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  if (focused !== null && focused.matches("input, select, textarea")) return;
  const path = focused === null ? null : pathOf(focused, part);
  const scrolled = [...part.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
  const open = [...part.querySelectorAll("details")].map((details) => details.open);
  part.innerHTML = html;
  part.querySelectorAll(".scroll").forEach((box, index) => {
    if (scrolled[index]) [box.scrollLeft, box.scrollTop] = scrolled[index];
  });
  part.querySelectorAll("details").forEach((details, index) => {
    if (open[index]) details.open = true;
  });
  if (path !== null) elementAt(path, part)?.focus({ preventScroll: true });
  showLocalTimes(part);
}

// The place of an element below another one, as indexes of children.
function pathOf(element, root) {
  const path = [];
  for (let at = element; at !== root; at = at.parentElement) {
    path.unshift([...at.parentElement.children].indexOf(at));
  }
  return path;
}

function elementAt(path, root) {
  return path.reduce((at, index) => at?.children[index], root);
}

function open() {
  if (stream !== null || isPaused || document.hidden || !hasLiveParts) return;
  stream = new EventSource(location.href);
  stream.onopen = () => say("live", true);
  stream.addEventListener("parts", (event) => {
    const parts = JSON.parse(event.data);
    for (const id of Object.keys(parts)) replacePart(id, parts[id]);
    say("live", true);
  });
  // The page's subject is gone, or the cluster does not answer: the values are old.
  stream.addEventListener("problem", (event) => say(JSON.parse(event.data), false));
  // The server ends each stream after a while, so that it can stop.
  stream.addEventListener("end", () => {
    close();
    open();
  });
  stream.onerror = () => {
    say("no connection", false);
    // A refused stream is not opened again by the browser itself.
    if (stream !== null && stream.readyState === EventSource.CLOSED) {
      close();
      setTimeout(open, RETRY_MS);
    }
  };
}

function close() {
  if (stream !== null) stream.close();
  stream = null;
}

showLocalTimes(document);
const zone = document.querySelector(".zone");
if (zone !== null) {
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  zone.textContent = `· times in ${name}${name === "UTC" ? "" : "; point at one for UTC"}`;
  zone.hidden = false;
}
if (hasLiveParts && live !== null) {
  live.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause updates";
    if (isPaused) {
      close();
      say("paused", false);
    } else open();
  });
  // A browser allows six connections to a host, so hidden tabs give theirs back.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  open();
}
