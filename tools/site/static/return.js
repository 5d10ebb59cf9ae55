// On the landing page: readers who have been here get their edition, and a link to the
// lesson that they've read last. `reading.js` has kept both.
"use strict";

{
  const root = new URL(".", document.currentScript.src);
  let place = null;
  try {
    place = JSON.parse(localStorage.getItem("d2l-place"));
  } catch {
    // The browser keeps nothing for this site.
  }

  const start = document.querySelector("a.start");
  const [, framework] = /^[a-z]{2}\/([a-z]+)$/.exec(place?.edition) ?? [];
  // A page of another language than the root's has been chosen for its language.
  const own = location.href.slice(root.href.length).match(/^([a-z]{2})\//)?.[1];
  const edition = own ? `${own}/${framework}` : place?.edition;
  const linked =
    framework && [...document.links].some(({ href }) => href.includes(`/${edition}/`));

  if (start && linked) {
    const to = (folder, page) => new URL(`${folder}/${page}`, root).href;
    start.href = to(edition, place.first);
    start.hreflang = edition.slice(0, 2);
    if (place.page) {
      const back = document.createElement("a");
      back.className = "continue";
      back.href = to(place.edition, place.page);
      back.lang = back.hreflang = place.edition.slice(0, 2);
      back.textContent = `${place.word} ${place.title}`;
      start.after(" ", back);
    }
  }
}
