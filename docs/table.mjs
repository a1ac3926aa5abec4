/** Escapes what Markdown takes for HTML or a template, except in code. */
export const escapeHtml = (text) =>
  text.replaceAll(/(`+)[\s\S]*?\1|<|\{\{/g, (found) => ({ '<': '&lt;', '{{': '&#123;{' })[found] ?? found);

/** A table of Markdown. */
export function table(head, rows) {
  const line = (cells) =>
    `| ${cells.map((cell) => escapeHtml(String(cell)).replaceAll('|', '\\|').replaceAll('\n', ' ')).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line), ''].join('\n');
}
