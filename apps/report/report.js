"use strict";
// Read-outs under the pointer. Everything is on the page without them.
(() => {
  const charts = JSON.parse(document.getElementById("curves").textContent);
  const shown = (value, chart) => {
    if (value === null || value === undefined) return "–";
    const x = value / chart.scale;
    const text = chart.digits >= 0
      ? x.toLocaleString("en", {minimumFractionDigits: chart.digits, maximumFractionDigits: chart.digits})
      : x !== 0 && (Math.abs(x) >= 1e6 || Math.abs(x) < 1e-3) ? x.toExponential(-chart.digits - 1)
      : x.toLocaleString("en", {minimumSignificantDigits: -chart.digits, maximumSignificantDigits: -chart.digits});
    return text + chart.unit;
  };
  const row = (color, name, text) => {
    const line = document.createElement("div"), key = document.createElement("i"), label = document.createElement("span"),
          value = document.createElement("b");
    key.className = "key c" + color;
    label.textContent = name;
    value.textContent = text;
    line.append(key, label, value);
    return line;
  };
  for (const box of document.querySelectorAll(".box[data-chart]")) {
    const chart = charts[box.dataset.chart];
    if (!chart) continue;
    const cursor = document.createElement("div"), card = document.createElement("div");
    cursor.className = "cursor";
    card.className = "readout";
    card.setAttribute("role", "status");
    cursor.hidden = card.hidden = true;
    box.append(cursor, card);
    let at = chart.last;
    const nearest = (curve, step) => {
      const begin = curve.first || curve.last;
      let best = 0;
      for (let i = 1; i < curve.last.length; ++i)
        if (Math.abs((begin[i] + curve.last[i]) / 2 - step) < Math.abs((begin[best] + curve.last[best]) / 2 - step)) best = i;
      return best;
    };
    const show = step => {
      at = Math.min(chart.last, Math.max(chart.first, step));
      const main = chart.curves.reduce((a, b) => b.last.length > a.last.length ? b : a);
      const i = nearest(main, at), begin = (main.first || main.last)[i], end = main.last[i];
      const place = chart.last > chart.first ? ((begin + end) / 2 - chart.first) / (chart.last - chart.first) : 0.5;
      const head = document.createElement("div");
      head.className = "head";
      head.textContent = begin === end ? "step " + end.toLocaleString("en")
                                       : "steps " + begin.toLocaleString("en") + "–" + end.toLocaleString("en");
      card.replaceChildren(head);
      for (const curve of chart.curves) {
        const k = nearest(curve, (begin + end) / 2);
        let text = shown(chart.stacked && curve.max ? curve.max[k] : curve.mean[k], chart);
        if (!chart.stacked && curve.min && curve.first[k] !== curve.last[k])
          text += "  (" + shown(curve.min[k], {...chart, unit: ""}) + " to " + shown(curve.max[k], {...chart, unit: ""}) + ")";
        if (curve.last[k] < begin - (chart.last - chart.first) / 50 || (curve.first || curve.last)[k] > end + (chart.last - chart.first) / 50)
          continue;
        card.append(row(curve.color, curve.name, text));
      }
      cursor.hidden = card.hidden = false;
      cursor.style.left = 100 * place + "%";
      const room = box.clientWidth - card.offsetWidth;
      card.style.left = Math.max(0, Math.min(room, place * box.clientWidth + (place > 0.5 ? -card.offsetWidth - 10 : 10))) + "px";
    };
    const hide = () => { cursor.hidden = card.hidden = true; };
    box.addEventListener("pointermove", event => {
      const area = box.getBoundingClientRect();
      show(chart.first + (event.clientX - area.left) / area.width * (chart.last - chart.first));
    });
    box.addEventListener("pointerleave", hide);
    box.addEventListener("blur", hide);
    box.addEventListener("keydown", event => {
      const move = {ArrowLeft: -1, ArrowRight: 1, PageUp: 10, PageDown: -10}[event.key];
      if (event.key === "Escape") return hide();
      if (event.key === "Home") show(chart.first);
      else if (event.key === "End") show(chart.last);
      else if (move) show(at + move * Math.max(1, (chart.last - chart.first) / 100));
      else return;
      event.preventDefault();
    });
  }
})();
