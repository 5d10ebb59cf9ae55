/* What the pictures of answers.js share: words, quantities as texts, and a time axis that
   can be magnified. */
window.answersBase = (() => {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  const WORDS = {
    en: {
      in: "Zoom in", out: "Zoom out", reset: "Show everything", all: "All",
      timeline: "timeline", memory: "memory over time", total: "together",
      help: "Point at something. Ctrl + wheel zooms, dragging pans. Keys: ← → ↑ ↓ + − 0",
      touch: "Tap something to read about it. Spread two fingers to zoom.",
    },
    fr: {
      in: "Agrandir", out: "Réduire", reset: "Tout afficher", all: "Tout",
      timeline: "chronologie", memory: "mémoire au fil du temps", total: "total",
      help: "Pointez un élément. Ctrl + molette agrandit, glisser déplace. " +
        "Touches : ← → ↑ ↓ + − 0",
      touch: "Touchez un élément pour le lire. Écartez deux doigts pour agrandir.",
    },
    pt: {
      in: "Ampliar", out: "Reduzir", reset: "Mostrar tudo", all: "Tudo",
      timeline: "linha do tempo", memory: "memória ao longo do tempo", total: "total",
      help: "Aponte para algo. Ctrl + roda amplia, arrastar desloca. " +
        "Teclas: ← → ↑ ↓ + − 0",
      touch: "Toque em algo para ler sobre ele. Afaste dois dedos para ampliar.",
    },
    zh: {
      in: "放大", out: "缩小", reset: "显示全部", all: "全部",
      timeline: "时间线", memory: "内存随时间的变化", total: "合计",
      help: "指向任意一处即可查看。Ctrl + 滚轮缩放，拖动平移。按键：← → ↑ ↓ + − 0",
      touch: "轻触任意一处即可查看。双指张开可放大。",
    },
  };
  const language = (document.documentElement.lang || "en").slice(0, 2);
  const words = WORDS[language] || WORDS.en;
  const SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  const BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
  const MOST = 100; // times that a picture can be magnified
  const NARROW = 544; // pixels below which a picture at rest couldn't be read
  const LEAST = 320; // pixels that a picture is drawn for, however small the window is

  // ---------------------------------------------------------------- small things

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  function drawn(tag, attributes, text) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) {
      made.setAttribute(name, value);
    }
    if (text) made.textContent = text;
    return made;
  }

  const number = (node, name) => Number(node.getAttribute(name) || 0);
  const between = (value, low, high) => Math.min(Math.max(value, low), high);

  /** Let a part of a drawing be seen, or not. */
  function seen(node, visible) {
    if (visible) node.removeAttribute("display");
    else node.setAttribute("display", "none");
  }

  function part(svg, name) {
    return [...svg.querySelectorAll(`[data-part="${name}"]`)];
  }

  /** Take the title out of an element, whose tooltip would cover ours. */
  function taken(node) {
    const title = node.querySelector(":scope > title");
    title?.remove();
    return title?.textContent ?? "";
  }

  /** Round values from low to high with their texts, as `linear_ticks` in Python. */
  function ticks(low, high, most) {
    const [scale, unit] = SECONDS.find(([each]) => high >= each) || SECONDS.at(-1);
    const power = Math.floor(Math.log10((high - low) / scale / most));
    for (const factor of [1, 2, 5, 10, 20, 50]) {
      const step = factor * 10 ** power;
      const first = Math.ceil(low / scale / step - 1e-9);
      const last = Math.floor(high / scale / step + 1e-9);
      if (last - first >= most) continue;
      const digits = between(-Math.floor(Math.log10(step) + 1e-9), 0, 12);
      return Array.from({ length: last - first + 1 }, (_, i) => {
        const value = (first + i) * step;
        const text = value ? `${Number(value.toFixed(digits))} ${unit}` : "0";
        return [value * scale, text];
      });
    }
    return [];
  }

  /** A moment, exact to a pixel of the picture as it's drawn now. */
  function moment(seconds, pixel) {
    const [scale, unit] = SECONDS.find(([each]) => seconds >= each) || SECONDS.at(-1);
    const digits = between(Math.ceil(-Math.log10(pixel / scale)), 0, 9);
    return `${Number((seconds / scale).toFixed(digits))} ${unit}`;
  }

  function size(bytes) {
    const [scale, unit] = BYTES.find(([each]) => bytes >= each) || [1, "B"];
    return `${Number((bytes / scale).toPrecision(3))} ${unit}`;
  }

  const pen = document.createElement("canvas").getContext("2d");
  function lengthOf(text) {
    pen.font = "12px sans-serif";
    return pen.measureText(text).width;
  }
  const fits = (text, room) => lengthOf(text) + 8 <= room;

  /** Black or white, whichever is easier to read on a colour such as #0072B2. */
  function ink(colour) {
    const [red, green, blue] = [1, 3, 5].map((i) => {
      const value = parseInt(colour.slice(i, i + 2), 16) / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
    return 1.05 / light >= light / 0.066 ? "#FFFFFF" : "#222222";
  }

  // ---------------------------------------------------------------- what all share

  /** A picture with a time axis that can be magnified.
   *
   * `factor` says how many times, `first` is the place of the plot that's at its left
   * edge, in pixels of the picture at rest. On a narrow screen the plot is `shown`
   * narrower than it's at rest, `width`; what's above it becomes text of the page. A kind
   * of picture adds `draw`, which puts everything where it is now; `upper`, where the
   * plot begins; `key`, what its colours mean; `at`, what's at a place; `next`, what a
   * key leads to; and `tell`, a card's contents and what a screen reader says.
   */
  class Picture {
    constructor(svg) {
      this.svg = svg;
      const { seconds, left, width } = svg.dataset;
      [this.seconds, this.left, this.width] = [seconds, left, width].map(Number);
      [this.factor, this.first, this.current] = [1, 0, null];
      this.axis = part(svg, "axis")[0];
      this.resting = [...this.axis.childNodes];
      const { width: wide, height } = svg.viewBox.baseVal;
      [this.shown, this.wide, this.height] = [this.width, wide, height];
      const [, ...rects] = svg.querySelectorAll(":scope > rect"); // the first is the paper
      this.lines = rects.filter((rect) => number(rect, "width") > this.width / 2)
        .map((rect) => [rect, number(rect, "width")]);
      // What is magnified is clipped by an inner picture, which needs no identifier.
      this.plot = drawn("svg", {
        x: this.left, y: 0, width: this.width, height: this.height,
        viewBox: `${this.left} 0 ${this.width} ${this.height}`,
      });
    }

    get narrow() {
      return this.shown !== this.width;
    }

    get atRest() {
      return this.factor === 1 && !this.narrow;
    }

    /** Pixels of the picture for each pixel of the picture at rest. */
    get scale() {
      return (this.factor * this.shown) / this.width;
    }

    /** Where a place of the picture at rest is now, and the other way round. */
    placed(x) {
      return this.left + (x - this.left - this.first) * this.scale;
    }

    resting_place(x) {
      return this.left + this.first + (x - this.left) / this.scale;
    }

    /** Suit a frame of some width, and return whether it's a narrow one. */
    fit(room) {
      const narrow = room < NARROW;
      const wide = narrow ? Math.max(room, LEAST) : this.wide;
      const top = narrow ? this.upper : 0;
      this.shown = narrow ? wide - this.left - 12 : this.width;
      const size = { width: wide, height: this.height - top };
      this.drawnWide = wide;
      const view = `0 ${top} ${wide} ${this.height - top}`;
      for (const [name, value] of Object.entries({ ...size, viewBox: view })) {
        this.svg.setAttribute(name, value);
      }
      this.plot.setAttribute("width", this.shown);
      this.plot.setAttribute("viewBox", `${this.left} 0 ${this.shown} ${this.height}`);
      for (const [line, width] of this.lines) {
        line.setAttribute("width", width - this.width + this.shown);
      }
      this.redraw();
      return narrow;
    }

    /** The lines of text above the plot, and what its colours mean. */
    head() {
      const above = [...this.svg.children].filter((node) =>
        node.hasAttribute("y") && number(node, "y") < this.upper);
      const written = (is) => above.filter((node) => node.localName === "text" && is(node))
        .map((node) => node.textContent).join(" ");
      const key = above.filter((node) => node.localName === "rect").map((rect) =>
        [rect.getAttribute("fill"), rect.nextElementSibling.textContent]);
      return {
        title: written((node) => node.hasAttribute("font-weight")),
        subtitle: written((node) => node.getAttribute("fill") === "#666666"),
        key: this.key ?? key,
      };
    }

    look(factor, first) {
      this.factor = between(factor, 1, MOST);
      this.first = between(first, 0, this.width - this.width / this.factor);
      this.ask ??= requestAnimationFrame(() => {
        this.ask = null;
        this.redraw();
      });
    }

    redraw() {
      this.drawAxis();
      this.draw();
      this.onLook?.();
    }

    /** Magnify, but leave what's at a place there. */
    zoom(times, x = this.left + this.shown / 2) {
      const fixed = this.resting_place(x) - this.left;
      const factor = between(this.factor * times, 1, MOST);
      const scale = (factor * this.shown) / this.width;
      this.look(factor, fixed - (x - this.left) / scale);
    }

    pan(pixels) {
      this.look(this.factor, this.first - pixels / this.scale);
    }

    /** Look at a stretch of the picture at rest, if it isn't in sight. */
    show(begin, end) {
      const wide = this.width / this.factor;
      if (begin >= this.first && end <= this.first + wide) return;
      this.look(this.factor, end - begin < wide ? (begin + end - wide) / 2 : begin);
    }

    time(x) {
      return ((x - this.left) / this.width) * this.seconds;
    }

    drawAxis() {
      if (this.atRest) return this.axis.replaceChildren(...this.resting);
      const [label] = this.resting.filter((node) => node.localName === "text");
      const [line] = this.resting.filter((node) => node.localName === "rect");
      const low = this.time(this.resting_place(this.left));
      const high = this.time(this.resting_place(this.left + this.shown));
      const made = [];
      for (const [time, text] of ticks(low, high, between(this.shown / 90, 3, 8))) {
        const x = this.placed(this.left + (time / this.seconds) * this.width);
        const last = this.drawnWide - lengthOf(text) / 2 - 2;
        for (const [node, place] of [[line, x - 0.5], [label, Math.min(x, last)]]) {
          if (!node) continue;
          const copy = node.cloneNode();
          copy.setAttribute("x", place);
          if (node === label) copy.textContent = text;
          made.push(copy);
        }
      }
      this.axis.replaceChildren(...made);
    }

    /** Names for stretches, each in the middle of what's in sight of it. */
    names(stretches, y) {
      const right = this.left + this.shown;
      return stretches.flatMap(({ begin, end, texts, colour }) => {
        const from = Math.max(this.placed(this.left + begin), this.left);
        const to = Math.min(this.placed(this.left + end), right);
        const text = texts.find((each) => each && fits(each, to - from));
        const at = { x: (from + to) / 2, y, fill: colour, "text-anchor": "middle" };
        return text ? [drawn("text", at, text)] : [];
      });
    }
  }

  return { Picture, SECONDS, between, drawn, element, ink, moment, number, part, seen,
    size, taken, words };
})();
