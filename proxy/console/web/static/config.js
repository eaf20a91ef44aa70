import { el, write } from './dom.js';
import { Table, twoLines } from './table.js';
import { section, choice } from './text.js';

export const config = {
  title: 'Configuration',
  path: 'config',
  lead: () => 'Settings in force, including defaults. Secrets are masked.',
  open() {
    let rows = [];
    let changed = false;
    const note = el('p', { class: 'lead' });
    const text = el('pre', { class: 'sheet text', tabindex: '0', role: 'region', 'aria-label': 'Configuration file' });
    const table = new Table({
      caption: 'Settings', id: (r) => r.path, sort: 'Setting', empty: 'All settings have their defaults.',
      columns: [
        { title: 'Setting', head: true, cell: twoLines((r) => r.path, (r) => (r.flag ? `--${r.flag}` : '')), find: (r) => `${r.path} --${r.flag ?? ''}`, by: (r) => r.path },
        { title: 'Value', text: (r) => (r.value === '' ? '(empty)' : r.value), by: (r) => r.value, class: 'code wide' },
        { title: 'Source', text: (r) => (r.default ? 'default' : 'changed'), by: (r) => (r.default ? 1 : 0) },
        { title: 'Description', text: (r) => r.about ?? '', class: 'about' },
      ],
    });
    const draw = () => table.update(changed ? rows.filter((r) => !r.default) : rows);
    return {
      nodes: [
        section('Settings', el('div', { class: 'tools' }, table.filter('Find a setting'),
          choice('Show', [['all', 'all'], ['changed', 'changed']], 'all', (value) => { changed = value === 'changed'; draw(); })), table.element),
        section('Configuration file', note, text)],
      update(d) {
        write(note, d.note ?? '');
        text.textContent = d.text;
        rows = d.settings ?? [];
        draw();
      },
    };
  },
};
