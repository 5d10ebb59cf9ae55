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
  function fits(text, room) {
    pen.font = "12px sans-serif";
    return pen.measureText(text).width + 8 <= room;
  }

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
   * edge, in pixels of the picture at rest. A kind of picture adds `draw`, which puts
   * everything where it is now; `at`, what's at a place; `next`, what a key leads to;
   * and `tell`, a card's contents and what a screen reader says.
   */
  class Picture {
    constructor(svg) {
      this.svg = svg;
      const { seconds, left, width } = svg.dataset;
      [this.seconds, this.left, this.width] = [seconds, left, width].map(Number);
      [this.factor, this.first, this.current] = [1, 0, null];
      this.axis = part(svg, "axis")[0];
      this.resting = [...this.axis.childNodes];
      this.height = svg.viewBox.baseVal.height;
      // What is magnified is clipped by an inner picture, which needs no identifier.
      this.plot = drawn("svg", {
        x: this.left, y: 0, width: this.width, height: this.height,
        viewBox: `${this.left} 0 ${this.width} ${this.height}`,
      });
    }

    /** Where a place of the picture at rest is now, and the other way round. */
    placed(x) {
      return this.left + (x - this.left - this.first) * this.factor;
    }

    resting_place(x) {
      return this.left + this.first + (x - this.left) / this.factor;
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
    zoom(times, x = this.left + this.width / 2) {
      const fixed = this.resting_place(x) - this.left;
      const factor = between(this.factor * times, 1, MOST);
      this.look(factor, fixed - (x - this.left) / factor);
    }

    pan(pixels) {
      this.look(this.factor, this.first - pixels / this.factor);
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
      if (this.factor === 1) return this.axis.replaceChildren(...this.resting);
      const [label] = this.resting.filter((node) => node.localName === "text");
      const [line] = this.resting.filter((node) => node.localName === "rect");
      const low = this.time(this.resting_place(this.left));
      const high = this.time(this.resting_place(this.left + this.width));
      const made = [];
      for (const [time, text] of ticks(low, high, between(this.width / 90, 2, 8))) {
        const x = this.placed(this.left + (time / this.seconds) * this.width);
        for (const [node, place] of [[line, x - 0.5], [label, x]]) {
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
      const right = this.left + this.width;
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
