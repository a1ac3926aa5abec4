import type { KeyMaterial } from './oidc/keys.js';
import type { OidcModule } from './oidc/module.js';
import type { IdpConfiguration } from './options.js';

const defined = (keys: (string | undefined)[]): string[] => keys.filter((key) => key !== undefined);

/** The keys that sign and that are published. */
export function keyMaterial(values: IdpConfiguration): KeyMaterial {
  const { ed25519Seed, ed25519SeedNext, ed25519SeedPrevious } = values;
  const { es256Key, es256KeyNext, es256KeyPrevious } = values;
  return {
    seeds: [ed25519Seed, ...defined([ed25519SeedNext, ed25519SeedPrevious])],
    es256Keys: defined([es256Key, es256KeyNext, es256KeyPrevious]),
    signsES256: es256Key !== undefined,
  };
}

/** What each key is for, in the order of `keyMaterial`. */
export function publishedKeys(values: IdpConfiguration, published: OidcModule['publishedKeys']) {
  const usesOf = (current?: string, next?: string, previous?: string) => [
    ...(current === undefined ? [] : ['current' as const]),
    ...(next === undefined ? [] : ['next' as const]),
    ...(previous === undefined ? [] : ['previous' as const]),
  ];
  const uses = [
    ...usesOf(values.ed25519Seed, values.ed25519SeedNext, values.ed25519SeedPrevious),
    ...usesOf(values.es256Key, values.es256KeyNext, values.es256KeyPrevious),
  ];
  return published.flatMap((key, index) => {
    const use = uses[index];
    return use ? [{ ...key, use }] : [];
  });
}
