import { Type } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { type Console, Done } from './console.js';
import { registerForms } from './forms.js';
import { ZONES } from './time-zone.js';

const Chosen = Type.Object({
  token: Type.String({ accepts: 'the token of the form', maxLength: 200, pattern: '^[\\w.-]*$' }),
  zone: Type.Enum(ZONES),
});

/** The page on which operators choose it. */
export async function registerTimeZone(fastify: FastifyTypebox, console: Console): Promise<void> {
  const { config, configFor, timeZone, tokensOf } = console;
  console.addNotice('time-zone', 'The time zone was changed.');
  const schema = { querystring: Type.Object({ done: Done }) };
  fastify.get('/time-zone', { config, schema }, async (request, reply) => {
    const chosen = timeZone.of(request);
    const choices = ZONES.map((zone) => ({
      value: zone,
      label: zone.replaceAll('_', ' '),
      isChosen: zone === chosen,
    }));
    const view = {
      title: 'Time zone',
      consequences:
        'Pages show times in this zone, in this browser. Days of plots, files and the API stay in UTC.',
      button: 'Save',
      action: 'time-zone',
      token: tokensOf(request).issue(),
      problems: [],
      hidden: [],
      inputs: [{ name: 'zone', label: 'Time zone', isSelect: true, choices }],
      backHref: './',
    };
    return console.send(request, reply, { template: 'console-action', section: '', view });
  });
  await registerForms(fastify, tokensOf, (forms) => {
    forms.post(
      '/time-zone',
      { config: configFor('read-only'), schema: { body: Chosen } },
      async (request, reply) => {
        timeZone.choose(reply, request.body.zone);
        return console.redirect(request, reply, 'time-zone', 'time-zone');
      },
    );
  });
}
