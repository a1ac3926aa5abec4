// Code blocks whose fence has a label become tabs, if they are neighbours: ```js [Fastify], one empty line, ```js [Express].

/** The text of a page with each run of labelled neighbours in a code group of VitePress. */
export function groupTabs(text) {
  const lines = text.split('\n');
  const blocks = labelledBlocks(lines);
  const runs = [];
  for (const block of blocks) {
    const run = runs.at(-1);
    const before = run?.at(-1);
    const isNext = before && before.indent === block.indent && lines[before.end + 1] === '';
    if (isNext && before.end + 2 === block.start) run.push(block);
    else runs.push([block]);
  }
  for (const run of runs.filter(({ length }) => length > 1)) {
    const [{ indent, start }] = run;
    lines[start] = `${indent}::: code-group\n\n${lines[start]}`;
    lines[run.at(-1).end] += `\n\n${indent}:::`;
  }
  return lines.join('\n');
}

/** First and last line of each block with a label, from 0. */
function labelledBlocks(lines) {
  const blocks = [];
  let open;
  for (const [index, line] of lines.entries()) {
    const [, indent, info] = /^( *)```(.*)$/.exec(line) ?? [];
    if (indent === undefined) continue;
    if (!open) open = { indent, start: index, isLabelled: /\[[^\]]+\]/.test(info) };
    else {
      if (open.isLabelled) blocks.push({ ...open, end: index });
      open = undefined;
    }
  }
  return blocks;
}
