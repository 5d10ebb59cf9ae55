/* Timelines and pictures of memory that answer: zoom, point at something, go from bar to
   bar with the arrow keys. Without these scripts they're the same pictures, at rest.

   `answers(svg)` does it for a picture that comes into the page later. A picture says by
   `data-picture` what it is; whatever doesn't is left alone. */
window.answers = (() => {
  "use strict";
  const { element, taken, words } = window.answersBase;
  const kinds = window.answersKinds;
  const ARROWS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];
  const STEP = 1.6; // from one magnification to the next
  const LINGER = 250; // milliseconds that a card stays, so that one can move onto it
  let count = 0;

  /** The buttons, the card and the voice around a picture. */
  function framed(picture, svg) {
    const coarse = matchMedia("(pointer: coarse)").matches;
    const help = element("span", { id: `answers-help-${++count}` });
    help.textContent = coarse ? words.touch : words.help;
    const buttons = {};
    const head = framedHead(picture);
    const tools = element("div", { class: "answers-tools" });
    for (const [name, text] of [["out", "−"], ["in", "+"], ["reset", words.all]]) {
      buttons[name] = element("button", { type: "button", title: words[name] }, text);
      if (name !== "reset") buttons[name].setAttribute("aria-label", words[name]);
      tools.append(buttons[name]);
    }
    tools.append(help);
    const card = element("div", { class: "answers-card", "aria-hidden": "true" });
    card.hidden = true;
    const voice = element("div", { class: "answers-said", "aria-live": "polite" });
    const scroll = element("div", { class: "answers-scroll" });
    const around = element("div", { class: "answers" });
    svg.replaceWith(around);
    scroll.append(svg);
    // A card below the picture hides neither the buttons nor the picture.
    around.append(head, tools, scroll, card, voice);

    const title = taken(svg);
    const description = svg.querySelector(":scope > desc")?.textContent ?? "";
    for (const [name, value] of Object.entries({
      tabindex: 0, role: "application", "aria-roledescription": picture.kind,
      "aria-label": description.includes(title) ? description : `${title}. ${description}`,
      "aria-describedby": help.id,
    })) {
      svg.setAttribute(name, value);
    }
    return { around, buttons, card, head, scroll, tools, voice };
  }

  /** What's written above a plot, as text of the page: in a narrow picture it has no room. */
  function framedHead(picture) {
    const { title, subtitle, key } = picture.head();
    // The picture's label says the same.
    const head = element("div", { class: "answers-head", "aria-hidden": "true" });
    head.append(element("p", { class: "answers-name" }, title));
    if (subtitle) head.append(element("p", { class: "answers-where" }, subtitle));
    const list = element("ul");
    for (const [colour, name, most = ""] of key) {
      const swatch = element("i", { style: `background:${colour}` });
      list.append(element("li", {}, swatch, `${name} ${most}`.trim()));
    }
    head.append(list);
    return head;
  }

  /** Make a picture answer, unless it isn't one of ours or does already. */
  function answers(svg) {
    const Kind = kinds[svg?.dataset?.picture];
    if (!Kind || svg.closest(".answers") || !(svg.dataset.seconds > 0)) return;
    const picture = new Kind(svg);
    const { around, buttons, card, head, scroll, tools, voice } = framed(picture, svg);
    let hiding = 0;

    function place(event) {
      const { x, y } = new DOMPoint(event.clientX, event.clientY)
        .matrixTransform(svg.getScreenCTM().inverse());
      return [x, y];
    }

    // -------------------------------------------------------------- what's pointed at

    function choose(item, speak = false) {
      stay();
      if (item === picture.current && !card.hidden && !speak) return;
      picture.current = item;
      picture.drawMark();
      card.hidden = item === null;
      if (item === null) return;
      const told = picture.tell(item);
      card.replaceChildren(...told.card);
      putCard();
      if (speak) card.scrollIntoView({ block: "nearest" });
      if (speak) voice.textContent = told.said;
    }

    /** Put the card beside a moment, or below the picture; without room in the window
     * below or above what it's about. */
    function putCard() {
      if (picture.current === null) return;
      const [begin, end, top, bottom] = picture.span(picture.current);
      const matrix = svg.getScreenCTM();
      const box = around.getBoundingClientRect();
      const at = (x, y) => new DOMPoint(x, y).matrixTransform(matrix);
      const low = at(Math.max(picture.placed(picture.left + begin), picture.left), bottom);
      const right = picture.left + picture.shown;
      const high = at(Math.min(picture.placed(picture.left + end), right), top);
      const middle = (low.x + high.x) / 2 - box.left;
      const side = picture.beside ?? 0;
      const room = around.clientWidth - card.offsetWidth;
      let x = middle + (side || -card.offsetWidth / 2);
      if (side && x > room) x = middle - side - card.offsetWidth;
      card.style.left = `${Math.max(0, Math.min(x, room))}px`;
      const under = svg.getBoundingClientRect().bottom + 4;
      const places = side ? [low.y + 8]
        : [under, low.y + 8, high.y - 8 - card.offsetHeight];
      const highest = Math.max(tools.getBoundingClientRect().bottom, 0);
      const y = places.find((each) =>
        each >= highest && each + card.offsetHeight < innerHeight) ?? places[0];
      card.classList.toggle("is-beside", y !== under);
      card.style.top = `${y - box.top}px`;
    }

    function hideSoon() {
      if (picture.current === null || hiding) return;
      hiding = setTimeout(() => choose(null), LINGER);
    }

    function stay() {
      clearTimeout(hiding);
      hiding = 0;
    }

    picture.onLook = () => {
      around.classList.toggle("is-zoomed", picture.factor > 1);
      const all = picture.factor === 1;
      buttons.out.setAttribute("aria-disabled", all);
      buttons.reset.setAttribute("aria-disabled", all);
      if (!card.hidden) putCard();
    };

    const reset = () => picture.look(1, 0);

    // -------------------------------------------------------------- pointers

    const down = new Map(); // where the pointers are that touch the picture
    let moved = 0;

    const spread = () => {
      const [a, b] = [...down.values()];
      return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
    };

    svg.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      if (!down.size) moved = 0;
      down.set(event.pointerId, event);
    });

    svg.addEventListener("pointermove", (event) => {
      const before = down.get(event.pointerId);
      if (!before) {
        if (event.pointerType !== "mouse") return;
        const item = picture.at(...place(event));
        if (item !== null) choose(item);
        else hideSoon();
        return;
      }
      const across = place(event)[0] - place(before)[0];
      if (down.size === 2) {
        const apart = spread();
        down.set(event.pointerId, event);
        const xs = [...down.values()].map((each) => place(each)[0]);
        if (apart > 0) picture.zoom(spread() / apart, (xs[0] + xs[1]) / 2);
        moved = Infinity;
        return;
      }
      down.set(event.pointerId, event);
      moved += Math.abs(across);
      if (picture.factor > 1 && moved > 3) {
        svg.setPointerCapture(event.pointerId);
        around.classList.add("is-dragged");
        picture.pan(across);
      }
    });

    for (const name of ["pointerup", "pointercancel"]) {
      svg.addEventListener(name, (event) => {
        const touched = down.delete(event.pointerId);
        around.classList.remove("is-dragged");
        if (touched && name === "pointerup" && moved <= 3) {
          choose(picture.at(...place(event)), event.pointerType !== "mouse");
        }
      });
    }

    card.addEventListener("pointerenter", stay);
    around.addEventListener("pointerleave", (event) => {
      down.delete(event.pointerId);
      const reading = document.activeElement === svg && svg.matches(":focus-visible");
      if (event.pointerType === "mouse" && !reading) hideSoon();
    });
    svg.addEventListener("dblclick", reset);
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
      event.preventDefault();
      const lines = event.deltaMode ? 30 : 1;
      picture.zoom(Math.exp(-event.deltaY * lines / 300), place(event)[0]);
    }, { passive: false });

    // -------------------------------------------------------------- keys and buttons

    /** Magnify around what's pointed at, or else the middle. */
    function zoom(times) {
      if (picture.current === null) return picture.zoom(times);
      const [begin, end] = picture.span(picture.current);
      picture.show(begin, end);
      picture.zoom(times, picture.placed(picture.left + (begin + end) / 2));
    }

    const keys = {
      "+": () => zoom(STEP), "=": () => zoom(STEP),
      "-": () => zoom(1 / STEP), "_": () => zoom(1 / STEP), "−": () => zoom(1 / STEP),
      0: reset, Escape: () => choose(null),
    };
    svg.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const { key } = event;
      if (ARROWS.includes(key)) {
        if (event.shiftKey && ["ArrowLeft", "ArrowRight"].includes(key)) {
          picture.pan(key === "ArrowLeft" ? 60 : -60);
        } else {
          const item = picture.next(key) ?? null;
          if (item !== null) picture.show(...picture.span(item));
          choose(item, true);
        }
      } else if (key in keys) {
        keys[key]();
      } else {
        return;
      }
      event.preventDefault();
    });
    svg.addEventListener("focus", () => {
      // What's announced then is the picture; a bar is, once somebody goes to it.
      if (svg.matches(":focus-visible")) choose(picture.current ?? picture.next("Home"));
    });
    svg.addEventListener("blur", hideSoon);
    buttons.in.addEventListener("click", () => zoom(STEP));
    buttons.out.addEventListener("click", () => zoom(1 / STEP));
    buttons.reset.addEventListener("click", reset);
    const fit = (room) => head.hidden = !picture.fit(room);
    addEventListener("beforeprint", () => {
      Object.assign(picture, { factor: 1, first: 0 });
      choose(null);
      fit(Infinity);
    });
    addEventListener("afterprint", () => fit(scroll.clientWidth));
    new ResizeObserver(() => {
      // What isn't shown, or isn't in the page any more, has no width to fit into.
      if (scroll.clientWidth) fit(scroll.clientWidth);
    }).observe(scroll);
    fit(scroll.clientWidth);
  }

  const begin = () => document.querySelectorAll("svg[data-picture]").forEach(answers);
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", begin);
  else begin();
  return answers;
})();
