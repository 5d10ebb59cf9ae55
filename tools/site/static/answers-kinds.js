/* The kinds of pictures of answers.js: timelines, and what memory is used for over time.
   All that they tell is in the picture: the titles of bars, the paths of bands. */
window.answersKinds = (() => {
  "use strict";
  const { Picture, SECONDS, between, drawn, element, ink, moment, number, part, seen,
    size, taken, words } = window.answersBase;
  const NEAR = 6; // pixels from which one still points at a narrow bar

  // ---------------------------------------------------------------- timelines

  class Timeline extends Picture {
    kind = words.timeline;

    constructor(svg) {
      super(svg);
      this.rows = part(svg, "row").map((group) => this.row(group));
      this.still = part(svg, "names");
      this.moving = drawn("g", { "pointer-events": "none" });
      this.mark = drawn("rect", { class: "answers-mark", display: "none" });
      this.plot.append(...this.rows.map((row) => row.group), ...this.still);
      this.plot.append(this.moving, this.mark);
      svg.append(this.plot);
      this.upper = this.rows[0].y - 6;
    }

    row(group) {
      const y = Number(group.getAttribute("transform").match(/ ([\d.]+)\)/)[1]);
      const row = { group, y, name: group.previousElementSibling.textContent };
      row.bars = [...group.children].map((rect, i) => {
        const said = taken(rect);
        const [, name, facts, lasts] = said.match(/^(.+): (at .+? for (\S+ [^\s,;]+).*)$/);
        const [amount, unit] = lasts.replace(/,/g, "").split(" ");
        const scale = SECONDS.find(([, each]) => each === unit)[0];
        const edged = rect.hasAttribute("stroke");
        const begin = number(rect, "x") - this.left - (edged ? 0.5 : 0);
        const end = begin + ((amount * scale) / this.seconds) * this.width;
        const colour = rect.getAttribute("fill") || group.getAttribute("fill");
        const rest = [rect.getAttribute("x"), rect.getAttribute("width")];
        const texts = [name, name.split(", ")[0], name.split(" for ")[0]];
        if (name.startsWith("issues ")) texts.length = 0;
        return { row, i, rect, said, name, facts, begin, end, colour, edged, rest, texts };
      });
      return row;
    }

    draw() {
      const still = this.atRest;
      const pixel = this.drawnWide / this.svg.getBoundingClientRect().width;
      for (const names of this.still) seen(names, still);
      this.moving.replaceChildren();
      for (const row of this.rows) {
        for (const bar of row.bars) {
          const [x, wide] = still ? bar.rest : this.extent(bar);
          bar.rect.setAttribute("x", x);
          bar.rect.setAttribute("width", wide < pixel ? pixel : wide);
        }
        if (still) continue;
        const stretches = row.bars.map((bar) => ({ ...bar, colour: ink(bar.colour) }));
        this.moving.append(...this.names(stretches, row.y + 15.2));
      }
      this.drawMark();
    }

    /** Where a bar is, with the gap after it that it has in the picture at rest. */
    extent(bar) {
      const x = this.placed(this.left + bar.begin);
      const wide = (bar.end - bar.begin) * this.scale;
      const inside = wide > 4 ? wide - 1 : Math.max(wide, 0.4);
      return bar.edged ? [x + 0.5, Math.max(inside - 1, 0.4)] : [x, inside];
    }

    drawMark() {
      const bar = this.current;
      seen(this.mark, bar);
      if (!bar) return;
      const [x, wide] = this.atRest ? bar.rest.map(Number) : this.extent(bar);
      const place = { x: x - 1, y: bar.row.y - 1, width: wide + 2, height: 24 };
      for (const [name, value] of Object.entries(place)) {
        this.mark.setAttribute(name, value);
      }
    }

    at(x, y) {
      const row = this.rows.find((each) => y >= each.y - 4 && y < each.y + 26);
      if (!row || x < this.left - NEAR || x > this.left + this.shown + NEAR) return null;
      const away = (bar) => {
        const begin = this.placed(this.left + bar.begin);
        const end = this.placed(this.left + bar.end);
        return Math.max(begin - x, x - Math.max(end, begin + 0.4), 0);
      };
      const nearest = row.bars.reduce((a, b) => (away(b) < away(a) ? b : a));
      return away(nearest) <= NEAR ? nearest : null;
    }

    next(key) {
      const bar = this.current;
      if (!bar) return this.rows[0]?.bars[0];
      const { bars } = bar.row;
      const steps = { ArrowLeft: bar.i - 1, ArrowRight: bar.i + 1, Home: 0, End: Infinity };
      if (key in steps) return bars[between(steps[key], 0, bars.length - 1)];
      const row = this.rows[this.rows.indexOf(bar.row) + (key === "ArrowUp" ? -1 : 1)];
      const away = (each) => Math.max(each.begin - bar.end, bar.begin - each.end, 0);
      return row?.bars.reduce((a, b) => (away(b) < away(a) ? b : a)) || bar;
    }

    /** From where to where something is, and its upper and its lower edge. */
    span(bar) {
      return [bar.begin, bar.end, bar.row.y, bar.row.y + 22];
    }

    tell(bar) {
      const swatch = element("i", { style: `background:${bar.colour}` });
      const [when, ...why] = bar.facts.split("; ");
      const lines = [when, ...why].map((text) => element("p", {}, text));
      const where = element("p", { class: "answers-where" }, swatch, bar.row.name);
      const name = element("p", { class: "answers-name" }, bar.name);
      return { card: [where, name, ...lines], said: `${bar.row.name}. ${bar.said}` };
    }
  }

  // ---------------------------------------------------------------- memory

  class Memory extends Picture {
    kind = words.memory;
    get beside() { // pixels from the moment to its card, if there's room
      return this.narrow ? 0 : 14;
    }

    constructor(svg) {
      super(svg);
      this.top = Number(svg.dataset.top);
      this.upper = this.top - 10;
      const unit = Number(svg.dataset.unit);
      [this.group] = part(svg, "bands");
      this.matrix = this.group.getAttribute("transform").match(/-?[\d.e-]+/g).map(Number);
      this.floor = this.matrix[5];
      this.bands = [...this.group.children].map((path) => {
        const [name, most] = taken(path).match(/^([^,，]+)[,，]\D*(.+)$/).slice(1);
        const colour = path.getAttribute("fill");
        return { name, most, colour, above: this.heights(path.getAttribute("d"), unit) };
      });
      this.key = this.bands.map(({ name, most, colour }) => [colour, name, most]);
      [this.phases] = part(svg, "phases");
      this.spans = [...this.phases.querySelectorAll("rect")].map((rect) => {
        const [x, wide] = [number(rect, "x") - 1, number(rect, "width") + 2];
        const name = taken(rect).split(/\s*[:：]/)[0];
        return { rect, begin: x - this.left, end: x + wide - this.left, texts: [name] };
      });
      [this.still] = part(svg, "names");
      this.moving = drawn("g", {});
      this.mark = drawn("rect", {
        class: "answers-mark", width: 0.1, display: "none",
        y: this.top, height: this.floor - this.top,
      });
      // The bands' names and the axis are drawn upon them.
      this.group.before(this.plot);
      this.plot.append(this.group, this.moving, this.mark);
    }

    /** The bytes up to a band's upper edge at each pixel, from its path. */
    heights(path, unit) {
      const above = new Array(this.width).fill(0);
      for (const [, x = 0, y] of path.matchAll(/(?:H(\d+))?V(\d+)(?!Z)/g)) {
        above.fill(unit * y, Number(x));
      }
      return above;
    }

    draw() {
      const still = this.atRest;
      const [, , , up, , floor] = this.matrix;
      const x = this.placed(this.left);
      this.group.setAttribute("transform", `matrix(${this.scale} 0 0 ${up} ${x} ${floor})`);
      for (const text of this.still.children) {
        const inside = number(text, "x") < this.left + this.width;
        seen(text, still || (!inside && !this.narrow));
      }
      for (const text of this.phases.querySelectorAll("text")) {
        seen(text, still);
      }
      for (const { rect, begin, end } of this.spans) {
        const right = this.left + this.shown;
        const from = between(this.placed(this.left + begin), this.left, right);
        const to = between(this.placed(this.left + end), this.left, right);
        rect.setAttribute("x", from + 1);
        rect.setAttribute("width", Math.max(to - from - 2, 0));
      }
      const y = number(this.spans[0]?.rect ?? this.svg, "y") + 16;
      const spans = this.spans.map((each) => ({ ...each, colour: "#222222" }));
      this.moving.replaceChildren(...(still ? [] : this.names(spans, y)));
      this.drawMark();
    }

    drawMark() {
      const shown = this.current !== null;
      seen(this.mark, shown);
      if (shown) this.mark.setAttribute("x", this.placed(this.left + this.current + 0.5));
    }

    at(x, y) {
      const column = Math.floor(this.resting_place(x) - this.left);
      const inside = column >= 0 && column < this.width;
      return inside && y >= this.top - 8 && y <= this.floor + 40 ? column : null;
    }

    /** The nearest pixel to the left or to the right where something is different. */
    next(key) {
      const last = this.width - 1;
      const from = this.current ?? 0;
      if (this.current === null || key === "Home") return 0;
      if (key === "End") return last;
      const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
      if (!step) return from;
      let column = between(from + step, 0, last);
      const same = (a, b) => this.bands.every(({ above }) => above[a] === above[b]);
      while (column > 0 && column < last && same(column, from)) column += step;
      return column;
    }

    span(column) {
      return [column, column + 1, this.top, this.beside ? this.top : this.floor];
    }

    tell(column) {
      const pixel = this.seconds / this.width;
      const phases = this.spans.filter(({ begin, end }) => column >= begin && column < end);
      // Of phases that share a pixel, the shorter one is drawn last.
      const phase = phases.length ? `, ${phases.at(-1).texts[0]}` : "";
      const when = `${moment((column + 0.5) * pixel, pixel)}${phase}`;
      const rows = this.bands.map(({ name, colour, above }, i) => {
        const below = this.bands[i + 1]?.above[column] ?? 0;
        return [name, colour, above[column] - below];
      });
      const held = rows.filter(([, , bytes]) => bytes);
      const lines = held.map(([name, colour, bytes]) => {
        const swatch = element("i", { style: `background:${colour}` });
        return [element("th", { scope: "row" }, swatch, name), size(bytes)];
      });
      const all = size(this.bands[0]?.above[column] ?? 0);
      lines.push([element("th", { scope: "row" }, words.total), all]);
      const table = element("table");
      table.append(...lines.map(([head, text]) =>
        element("tr", {}, head, element("td", {}, text))));
      const told = held.map(([name, , bytes]) => `${name} ${size(bytes)}`);
      return {
        card: [element("p", { class: "answers-name" }, when), table],
        said: [when, `${words.total} ${all}`, ...told].join(", "),
      };
    }
  }

  return { timeline: Timeline, memory: Memory };
})();
