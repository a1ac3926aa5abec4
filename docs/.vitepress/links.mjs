// Checks the links of a built site: pages, files and anchors. VitePress checks only pages.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join, posix } from 'node:path';

/** One line for each link inside the site that leads nowhere. @param base the path of the site at its host */
export function findBrokenLinks(folder, base = '/') {
  const files = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith('.html'));
  const texts = new Map(files.map((name) => [name, readFileSync(join(folder, name), 'utf8')]));
  const ids = new Map(
    [...texts].map(([name, text]) => [
      name,
      new Set([...text.matchAll(/\sid="([^"]+)"/g)].map(([, id]) => id)),
    ]),
  );
  const broken = [];
  for (const [name, text] of texts) {
    if (name === '404.html') continue;
    for (const [, attribute] of text.matchAll(/<(?:a|img)\b[^>]*\s(?:href|src)="([^"]+)"/g)) {
      const href = attribute.replaceAll('&amp;', '&');
      const link = href.startsWith(base) ? `/${href.slice(base.length)}` : href;
      if (/^(?:[a-z]+:|\/\/)/.test(link)) continue;
      const [path, anchor] = link.split('#');
      const target = path === '' ? name : posix.resolve('/', posix.dirname(name), path).slice(1);
      const file = fileOf(folder, target);
      if (!file) broken.push(`${name}: ${link} leads nowhere`);
      else if (anchor && ids.has(file) && !ids.get(file).has(decodeURIComponent(anchor))) {
        broken.push(`${name}: ${link} names no heading of ${file}`);
      }
    }
  }
  return [...new Set(broken)];
}

/** The file that a server of the site sends for a path. */
function fileOf(folder, path) {
  return [path, `${path}.html`, posix.join(path, 'index.html')].find((name) => {
    const full = join(folder, name);
    return name !== '' && existsSync(full) && statSync(full).isFile();
  });
}
