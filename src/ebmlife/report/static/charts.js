"use strict";

// Charts: each figure element contains its numbers as JSON beside the box for its drawing.
const Charts = (() => {
  const drawn = new Map(); // figure -> uPlot
  const watcher = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = drawn.get(target.closest("figure"));
      const width = Math.floor(target.clientWidth);
      if (plot && width > 0 && width !== plot.width) plot.setSize({ width, height: plot.height });
    }
  });

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const faint = (name, percent) => color(name) + Math.round(2.55 * percent).toString(16).padStart(2, "0"); // #rrggbbaa
  const plain = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });

  // A logarithmic axis of steps includes 0. Other logarithmic axes show positive values only.
  const stepScale = { to: (v) => Math.log10(1 + v), from: (v) => 10 ** v - 1 };
  const logScale = { to: (v) => (v > 0 ? Math.log10(v) : null), from: (v) => 10 ** v };
  const linear = { to: (v) => v, from: (v) => v };
  const moved = (scale, values) => values.map((v) => (v === null ? null : scale.to(v)));

  const wholes = [1, 2, 5].flatMap((digit) => Array.from({ length: 10 }, (_, power) => digit * 10 ** power)).sort((a, b) => a - b);

  function stepTicks(max) {
    const ticks = [0];
    for (let at = 1; stepScale.to(at) <= max + 1e-9; at *= 10) ticks.push(stepScale.to(at));
    return ticks;
  }

  function logTicks(min, max) {
    const wide = max - min > 2.5;
    const every = Math.max(1, Math.ceil((max - min) / 6));
    const ticks = [];
    for (let power = Math.floor(min); power <= max; power += 1) {
      if (wide && power % every) continue;
      for (const digit of wide ? [1] : max - min < 1 ? [1, 1.5, 2, 3, 5, 7] : [1, 2, 5]) {
        const at = power + Math.log10(digit);
        if (at >= min && at <= max) ticks.push(at);
      }
    }
    return ticks;
  }

  function short(v) {
    const size = Math.abs(v);
    if (size >= 1e9 || (size > 0 && size < 1e-3)) return v.toExponential(0);
    if (size >= 1e6) return `${plain.format(v / 1e6)}M`;
    if (size >= 1e4) return `${plain.format(v / 1e3)}k`;
    return plain.format(v);
  }

  const lineColor = (i, many) => (many ? color(`--line-${i % 6}`) : color("--accent"));
  const dashes = [[], [6, 3], [2, 3], [8, 3, 2, 3], [4, 2], [1, 2]];
  const dash = (i) => dashes[(i + Math.floor(i / 6)) % dashes.length]; // the seventh line is not drawn as the first

  function columns(spec, x, y) {
    const data = [moved(x, spec.x)];
    const series = [{}];
    const bands = [];
    const many = spec.lines.length > 1;
    spec.lines.forEach((line, i) => {
      const stroke = () => lineColor(i, many);
      if (line.low) {
        data.push(moved(y, line.high), moved(y, line.low));
        series.push({ stroke: null, points: { show: false } }, { stroke: null, points: { show: false } });
        const token = many ? `--line-${i % 6}` : "--accent";
        bands.push({ series: [data.length - 2, data.length - 1], fill: () => faint(token, 16) });
      }
      data.push(moved(y, line.values));
      series.push({
        label: line.name,
        stroke,
        width: 2,
        dash: many && !spec.bars ? dash(i) : undefined,
        spanGaps: true,
        points: { show: spec.x.length < 40 && !spec.bars, size: 5, fill: stroke },
        ...(spec.bars ? bars(i, spec.lines.length, stroke) : {}),
      });
    });
    return { data, series, bands };
  }

  function bars(i, count, stroke) {
    const align = count === 1 ? 0 : i === 0 ? -1 : 1;
    return { fill: stroke, width: 0, paths: uPlot.paths.bars({ size: [0.72 / count, 40], align }) };
  }

  function behind(spec, x, y) {
    return (plot) => {
      const { ctx, bbox } = plot;
      const across = (v) => plot.valToPos(x.to(v), "x", true);
      const up = (v) => plot.valToPos(v, "y", true);
      const right = bbox.left + bbox.width;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      const begins = Object.entries(spec.regions);
      begins.forEach(([name, from], i) => {
        const left = Math.max(bbox.left, across(from));
        const end = i + 1 < begins.length ? Math.min(right, across(begins[i + 1][1])) : right;
        if (end <= left) return;
        ctx.fillStyle = faint("--accent", 4 + 5 * i);
        ctx.fillRect(left, bbox.top, end - left, bbox.height);
        const fits = wide(ctx, name) < end - left - 8 * devicePixelRatio;
        write(ctx, fits ? name : name.split(":")[0], (left + end) / 2, bbox.top + 6 * devicePixelRatio, "--soft", "center");
      });
      if (spec.data) {
        const [low, high] = spec.data.map((v) => up(y.to(v) ?? plot.scales.y.min));
        ctx.fillStyle = faint("--ink", 12);
        ctx.fillRect(bbox.left, high, bbox.width, Math.max(low - high, 2));
        write(ctx, "data", right - 6 * devicePixelRatio, high - 16 * devicePixelRatio, "--soft", "right");
      }
      const zero = plot.scales.y.min < 0 && plot.scales.y.max > 0 && y === linear;
      if (zero) rule(ctx, bbox.left, up(0), right, up(0), "--rule-strong", []);
      ctx.restore();
    };
  }

  function before(spec, x) {
    return (plot) => {
      const { ctx, bbox } = plot;
      const foot = bbox.top + bbox.height;
      Object.entries(spec.marks).forEach(([said, at], i) => {
        const left = plot.valToPos(x.to(at), "x", true);
        rule(ctx, left, bbox.top, left, foot, "--ink", [4, 4]);
        const room = bbox.left + bbox.width - left > wide(ctx, said) + 12 * devicePixelRatio;
        const shift = (room ? 6 : -6) * devicePixelRatio;
        write(ctx, said, left + shift, foot - (20 + 16 * i) * devicePixelRatio, "--ink", room ? "left" : "right");
      });
      if (plot.marker !== undefined) {
        const left = plot.valToPos(x.to(plot.marker), "x", true);
        rule(ctx, left, bbox.top, left, foot, "--accent", []);
      }
    };
  }

  function rule(ctx, x0, y0, x1, y1, token, dash) {
    ctx.save();
    ctx.strokeStyle = color(token);
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash(dash.map((d) => d * devicePixelRatio));
    ctx.beginPath();
    ctx.moveTo(x0, y0);
    ctx.lineTo(x1, y1);
    ctx.stroke();
    ctx.restore();
  }

  function wide(ctx, text) {
    ctx.save();
    ctx.font = `${12 * devicePixelRatio}px ${color("--sans")}`;
    const { width } = ctx.measureText(text);
    ctx.restore();
    return width;
  }

  function write(ctx, text, left, top, token, align) {
    ctx.save();
    ctx.font = `${12 * devicePixelRatio}px ${color("--sans")}`;
    ctx.fillStyle = color(token);
    ctx.textAlign = align;
    ctx.textBaseline = "top";
    ctx.fillText(text, left, top);
    ctx.restore();
  }

  function range(spec, y) {
    if (spec.scale) return () => spec.scale.map(y.to);
    return (plot, low, high) => {
      const ends = [low, high].concat(spec.data ? spec.data.map(y.to) : []).filter((v) => v !== null);
      if (!ends.length) return [0, 1];
      if (spec.bars) ends.push(0);
      const [least, most] = [Math.min(...ends), Math.max(...ends)];
      const slack = (most - least || Math.abs(most) || 1) * 0.08;
      return [spec.bars && least === 0 ? 0 : least - slack, most + slack];
    };
  }

  function options(figure, spec, box) {
    const x = spec.logX ? stepScale : linear;
    const y = spec.logY ? logScale : linear;
    const { data, series, bands } = columns(spec, x, y);
    const last = data[0][data[0].length - 1];
    const half = spec.bars ? (data[0][1] - data[0][0]) / 2 || 0.5 : 0;
    const end = Object.keys(spec.regions).length ? Math.max(last, stepScale.to(3e5)) : last;
    const axis = {
      stroke: () => color("--soft"),
      font: `12px ${color("--sans")}`,
      labelFont: `12px ${color("--sans")}`,
      labelSize: 20,
      grid: { stroke: () => color("--rule"), width: 1 },
      ticks: { show: false },
    };
    const counted = spec.x.every(Number.isInteger) ? { incrs: wholes } : {};
    const said = (scale) => (plot, splits) => splits.map((v) => short(scale.from(v)));
    return {
      data,
      width: Math.max(160, Math.floor(box.clientWidth)),
      height: figure.classList.contains("tall") ? 340 : 220,
      series,
      bands,
      scales: {
        x: { time: false, range: () => [data[0][0] - half, end + half] },
        y: { range: range(spec, y) },
      },
      axes: [
        { ...axis, label: spec.xName, size: 32, values: said(x), ...(spec.logX ? { splits: (p, i, min, max) => stepTicks(max) } : counted) },
        {
          ...axis,
          label: spec.yName,
          size: 56,
          values: said(y),
          ...(spec.logY ? { splits: (p, i, min, max) => logTicks(min, max) } : {}),
        },
      ],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      hooks: {
        drawClear: [behind(spec, x, y)],
        draw: [before(spec, x)],
        setCursor: [(plot) => read(figure, spec, plot.cursor.idx)],
      },
    };
  }

  function read(figure, spec, i) {
    const output = figure.querySelector(".reading");
    if (i === null || i === undefined) {
      output.textContent = "";
      return;
    }
    const values = spec.lines
      .filter((line) => line.values[i] !== null)
      .map((line) => `${spec.lines.length > 1 ? `${line.name} ` : ""}${plain.format(line.values[i])}`);
    output.textContent = `${spec.xName} ${plain.format(spec.x[i])}: ${values.join(", ") || "no value"}`;
  }

  function legend(figure, spec) {
    if (spec.lines.length < 2) return;
    const list = document.createElement("ul");
    list.className = "legend";
    spec.lines.forEach((line, i) => {
      const item = document.createElement("li");
      item.append(sample(spec, i), line.name);
      list.append(item);
    });
    figure.querySelector(".plot").before(list);
  }

  function sample(spec, i) {
    if (spec.bars) {
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.setProperty("--line", `var(--line-${i % 6})`);
      return swatch;
    }
    const space = "http://www.w3.org/2000/svg";
    const picture = document.createElementNS(space, "svg");
    const line = document.createElementNS(space, "path");
    picture.setAttribute("viewBox", "0 0 28 8");
    picture.setAttribute("aria-hidden", "true");
    line.setAttribute("d", "M0 4H28");
    line.setAttribute("stroke-dasharray", dash(i).join(" "));
    line.style.stroke = `var(--line-${i % 6})`;
    picture.append(line);
    return picture;
  }

  function keys(box, plot, spec) {
    let at = -1;
    box.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: spec.x.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      at = Math.min(Math.max(to, 0), spec.x.length - 1);
      plot.setCursor({ left: plot.valToPos(plot.data[0][at], "x"), top: plot.over.clientHeight / 2 });
    });
    box.addEventListener("blur", () => plot.setCursor({ left: -10, top: -10 }));
  }

  function draw(figure) {
    const spec = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    const box = figure.querySelector(".plot");
    legend(figure, spec);
    const { data, ...rest } = options(figure, spec, box);
    const plot = new uPlot(rest, data, box);
    drawn.set(figure, plot);
    watcher.observe(box);
    keys(box, plot, spec);
    return plot;
  }

  function clear(root) {
    for (const figure of root.querySelectorAll("figure.chart")) {
      drawn.get(figure)?.destroy();
      drawn.delete(figure);
    }
  }

  return {
    drawAll: (root) => root.querySelectorAll("figure.chart").forEach(draw),
    clear,
    redraw: () => drawn.forEach((plot) => plot.redraw(false, true)),
    mark(figure, x) {
      const plot = drawn.get(figure);
      if (!plot) return;
      plot.marker = x;
      plot.redraw(false);
    },
    fit() {
      for (const [figure, plot] of drawn) {
        const width = Math.floor(figure.querySelector(".plot").clientWidth);
        if (width > 0) plot.setSize({ width, height: plot.height });
      }
    },
  };
})();
