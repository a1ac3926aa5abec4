// The script of the pages with passkeys. Without it, or in a browser without passkeys, their form stays hidden.
{
  const form = document.querySelector('[data-passkey]');
  const passkeys = window.PublicKeyCredential;
  /** The form of a sign-up, whose fields the one for passkeys repeats. */
  const signUp = document.getElementById('sign-up');
  const options = () => {
    const given = JSON.parse(form.dataset.options);
    if (!signUp) return given;
    const { handle, name } = form.elements;
    return { ...given, user: { ...given.user, name: handle.value, displayName: name.value || handle.value } };
  };
  let waiting;

  const base64url = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer)))
      .replaceAll('+', '-')
      .replaceAll('/', '_')
      .replaceAll('=', '');

  const BYTES = ['clientDataJSON', 'attestationObject', 'authenticatorData', 'signature', 'userHandle'];

  /** A hint, which some password managers cannot give. */
  const transportsOf = (response) => {
    try {
      return response.getTransports?.() ?? [];
    } catch {
      return [];
    }
  };

  /** As `toJSON`, which throws for the credentials of some password managers, or does not exist. */
  const toJson = ({ id, rawId, type, response }) => {
    const given = BYTES.filter((name) => response[name]).map((name) => [name, base64url(response[name])]);
    const transports = transportsOf(response);
    return { id, rawId: base64url(rawId), type, response: { ...Object.fromEntries(given), transports } };
  };

  const send = (credential) => {
    form.elements.credential.value = JSON.stringify(toJson(credential));
    form.submit();
  };

  const ceremonies = {
    create: () =>
      navigator.credentials.create({ publicKey: passkeys.parseCreationOptionsFromJSON(options()) }),
    get: (more) =>
      navigator.credentials.get({ publicKey: passkeys.parseRequestOptionsFromJSON(options()), ...more }),
  };

  /** Offers passkeys where the browser fills in the user name. */
  const offer = async () => {
    if (!(await passkeys.isConditionalMediationAvailable?.())) return;
    waiting = new AbortController();
    const { signal } = waiting;
    // Ended by the button, or refused: the other ways to sign in remain.
    const credential = await ceremonies.get({ mediation: 'conditional', signal }).catch(() => null);
    if (credential) send(credential);
  };

  /** Shows why there is no passkey: the sentence for this error, or the first one. */
  const explain = (error) => {
    const sentences = [...form.querySelectorAll('[data-error]')];
    const own = sentences.find(({ dataset }) => dataset.error === error?.name) ?? sentences[0];
    for (const sentence of sentences) sentence.hidden = sentence !== own;
  };

  const start = async (event) => {
    event.preventDefault();
    waiting?.abort();
    for (const name of signUp ? ['handle', 'name'] : []) {
      const field = signUp.elements[name];
      if (!field.reportValidity()) return;
      form.elements[name].value = field.value;
    }
    try {
      send(await ceremonies[form.dataset.passkey]());
    } catch (error) {
      explain(error);
      if (form.dataset.passkey === 'get') await offer();
    }
  };

  if (form && passkeys?.parseCreationOptionsFromJSON && passkeys.parseRequestOptionsFromJSON) {
    form.hidden = false;
    for (const other of document.querySelectorAll('[data-no-passkey]')) other.hidden = true;
    form.addEventListener('submit', start);
    if (form.dataset.passkey === 'get') offer();
  }
}
