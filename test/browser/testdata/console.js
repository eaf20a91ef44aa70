// Helpers for the console's test that run in its pages: waiting for conditions, and accessibility
// checks.
(() => {
  const bound = 120_000;

  // until resolves when a condition holds, and rejects with its description after two minutes. It
  // checks the condition whenever the page changes, and periodically for conditions that no element
  // reflects.
  window.until = (what, condition) => new Promise((resolve, reject) => {
    const ends = [];
    const end = (result, value) => { ends.forEach((e) => e()); result(value); };
    const look = () => {
      try {
        const value = condition();
        if (value) end(resolve, value);
      } catch (error) {
        end(reject, error);
      }
    };
    const observer = new MutationObserver(look);
    observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
    const [again, late] = [setInterval(look, 50), setTimeout(() => end(reject, new Error(`timeout: ${what}`)), bound)];
    ends.push(() => observer.disconnect(), () => clearInterval(again), () => clearTimeout(late));
    look();
  });

  // changes resolves when a text has had n different values.
  window.changes = (what, n, text) => {
    const seen = new Set();
    return until(`${n} values of ${what}, after ${JSON.stringify([...seen])}`, () => seen.add(text()).size >= n);
  };

  window.openPage = async (name) => {
    location.hash = `#/${name}`;
    await until(`page ${name}`, () => {
      const current = document.querySelector('nav a[aria-current]')?.getAttribute('href');
      const waiting = document.querySelector('#page > .empty:not([hidden])');
      return current?.split(/[/?]/)[1] === name && !waiting && document.querySelector('#page h1');
    });
    return [...document.querySelectorAll('#page > .problem:not([hidden]), #page > .note:not([hidden])')].map((e) => e.textContent).join(' ');
  };

  window.figure = (name) => [...document.querySelectorAll('#page dt')].find((dt) => dt.textContent === name)?.parentElement;

  const visible = (e) => e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && e.getClientRects().length > 0;
  const name = (e) => `<${e.tagName.toLowerCase()}${e.id && ` id=${e.id}`}${e.getAttribute('class') ? ` class="${e.getAttribute('class')}"` : ''}> ${e.textContent.trim().slice(0, 40)}`;

  // Colors are read back from a canvas, which parses every notation.
  const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 });
  const drawing = canvas.getContext('2d', { willReadFrequently: true });
  const colours = new Map();
  function colour(text) {
    if (!colours.has(text)) {
      drawing.clearRect(0, 0, 1, 1);
      drawing.fillStyle = text;
      drawing.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = drawing.getImageData(0, 0, 1, 1).data;
      colours.set(text, [r, g, b, a / 255]);
    }
    return colours.get(text);
  }
  const over = (front, back) => front.slice(0, 3).map((v, i) => v * front[3] + back[i] * (1 - front[3])).concat(1);
  function ground(e) {
    const layers = [];
    for (let at = e; at; at = at.parentElement) layers.push(colour(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((back, front) => over(front, back), [255, 255, 255, 1]);
  }
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);

  function contrasts(problems) {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const looked = new Set();
    while (walker.nextNode()) {
      const e = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || looked.has(e) || !visible(e) || e.closest('.unseen, .skip, :disabled')) continue;
      looked.add(e);
      const ratio = contrast(over(colour(getComputedStyle(e).color), ground(e)), ground(e));
      if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)} < 4.5: ${name(e)}`);
    }
    for (const e of document.querySelectorAll('input:not([type=radio]), select')) {
      const edge = contrast(colour(getComputedStyle(e).borderTopColor), ground(e.parentElement));
      if (visible(e) && edge < 3) problems.push(`contrast ${edge.toFixed(2)} < 3 of the edge of ${name(e)}`);
      const hint = contrast(colour(getComputedStyle(e, '::placeholder').color), ground(e));
      if (e.placeholder && hint < 4.5) problems.push(`contrast ${hint.toFixed(2)} < 4.5 of the hint in ${name(e)}`);
    }
  }

  function structure(problems) {
    const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
    for (const id of new Set(ids.filter((v, i) => ids.indexOf(v) !== i))) problems.push(`id ${id} is not unique`);
    for (const attribute of ['for', 'aria-labelledby', 'aria-describedby', 'aria-controls']) {
      for (const e of document.querySelectorAll(`[${attribute}]`)) {
        for (const id of e.getAttribute(attribute).split(/\s+/)) {
          if (!document.getElementById(id)) problems.push(`${attribute} of ${name(e)} refers to ${id}, which does not exist`);
        }
      }
    }
    const headings = [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].filter((e) => e.checkVisibility());
    if (headings.filter((e) => e.tagName === 'H1').length !== 1) problems.push('there must be one h1');
    headings.reduce((last, e) => {
      const level = Number(e.tagName[1]);
      if (level > last + 1) problems.push(`h${level} after h${last}: ${name(e)}`);
      return level;
    }, 0);
    for (const [landmark, n] of [['header', 1], ['nav', 1], ['main', 1]]) {
      if (document.querySelectorAll(landmark).length !== n) problems.push(`there must be one ${landmark}`);
    }
    for (const table of document.querySelectorAll('table')) {
      if (![...table.querySelectorAll('thead th')].every((th) => th.scope === 'col')) problems.push('a column header without scope');
      if (![...table.querySelectorAll('tbody tr')].every((tr) => tr.querySelector('th[scope=row]'))) problems.push(`a row without a header: ${name(table)}`);
      if (table.querySelectorAll('[aria-sort=ascending], [aria-sort=descending]').length > 1) problems.push('a table is sorted twice');
    }
    for (const e of document.querySelectorAll('svg')) {
      if (e.getAttribute('aria-hidden') !== 'true' && !(e.getAttribute('role') === 'img' && e.getAttribute('aria-label'))) problems.push(`an image without a label: ${name(e.parentElement)}`);
    }
    if (document.querySelector('img, iframe, object, embed, [style], script:not([src])')) problems.push('an element that the console does not use');
    if (!document.documentElement.lang || !document.title.includes('kubeweir')) problems.push('no language or title');
  }

  function room(problems) {
    const wide = document.scrollingElement.scrollWidth;
    if (wide > innerWidth) {
      const widest = [...document.querySelectorAll('body *')].find((e) => e.getBoundingClientRect().right > innerWidth + 1);
      problems.push(`${wide} pixels wide in a window of ${innerWidth}: ${widest && name(widest)}`);
    }
    for (const e of document.querySelectorAll('button, select, input:not([type=radio]), nav a')) {
      const { width, height } = e.getBoundingClientRect();
      if (visible(e) && (width < 24 || height < 24)) problems.push(`a target of ${width.toFixed()} by ${height.toFixed()} pixels: ${name(e)}`);
    }
  }

  window.look = () => {
    const problems = [];
    contrasts(problems);
    structure(problems);
    room(problems);
    return problems.slice(0, 20);
  };

  // For radio buttons with one name, the Tab key reaches the checked one, the arrow keys the
  // others.
  const stops = () => [...document.querySelectorAll('a[href], button, input, select, textarea, [tabindex="0"]')]
    .filter((e) => visible(e) || e.type === 'radio' && e.closest('label')?.checkVisibility() || e.id === 'skip')
    .filter((e) => !e.disabled && (e.type !== 'radio' || e.checked));
  window.unreached = (reached) => stops().filter((e) => !reached.has(e)).map(name);

  // focused records the focused element. It returns whether the element had the focus before, and
  // any problem with it.
  window.reached = new Set();
  window.focused = () => {
    const e = document.activeElement;
    if (!e || e === document.body) return { end: true };
    const marked = e.type === 'radio' ? e.closest('label') : e;
    const { outlineStyle, outlineWidth } = getComputedStyle(marked);
    const problem = outlineStyle === 'none' || parseFloat(outlineWidth) < 1 ? `no visible focus on ${name(e)}` : '';
    const end = window.reached.has(e);
    window.reached.add(e);
    return { end, problem };
  };
})();
