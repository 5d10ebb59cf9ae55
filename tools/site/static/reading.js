// Beside what pages show without scripts: the switch keeps the reader's section, the
// browser remembers the edition, and what scrolls can be scrolled with the keyboard.
"use strict";

{
  // The last section that begins in the upper third of the window, or above it.
  const sectionRead = (known) => {
    let found = "";
    for (const each of document.querySelectorAll("article section section[id]")) {
      if (each.getBoundingClientRect().top > innerHeight / 3) break;
      if (known === undefined || known.includes(each.id)) found = each.id;
    }
    return found;
  };

  const keepPlace = (event) => {
    const link = event.target.closest?.(".switch a");
    if (link?.host !== location.host) return; // the lesson is only on GitHub
    const found = sectionRead(link.dataset.sections?.split(" "));
    const term = location.hash.startsWith("#term-") ? location.hash : "";
    link.hash = found || term;
  };
  // Before anything is done with a link, such as opening it in a new tab.
  for (const event of ["pointerdown", "focusin", "click"])
    document.addEventListener(event, keepPlace);

  // What `return.js` reads on the landing page.
  const { content: edition, dataset } =
    document.querySelector('meta[name="d2l-edition"]');
  try {
    const before = JSON.parse(localStorage.getItem("d2l-place"));
    const place = { ...(before?.edition === edition && before), edition, ...dataset };
    if (dataset.page) place.title = document.querySelector("h1").firstChild.textContent;
    localStorage.setItem("d2l-place", JSON.stringify(place));
  } catch {
    // The browser keeps nothing for this site.
  }

  // On a phone a figure is small: a tap opens it alone, where it can be magnified.
  for (const image of document.querySelectorAll("article img:not(a img)")) {
    const link = document.createElement("a");
    link.href = image.src;
    image.replaceWith(link);
    link.append(image);
  }

  // Only what's wider than its frame takes a press of the Tab key.
  const frames = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  const watch = () => {
    const found = "article :is(pre, .cell_output, .table-wrapper, mjx-container)";
    for (const each of document.querySelectorAll(found)) frames.observe(each);
  };
  watch();
  addEventListener("load", () => globalThis.MathJax?.startup?.promise?.then(watch));

  addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const each of document.querySelectorAll(".sidebar-toggle:checked")) {
      each.checked = false;
      each.focus();
    }
  });

  // Excerpts of pages found come from these pages, which a file may not read.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined")
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
