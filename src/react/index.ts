'use client';
/** Who is signed in, what they have bought and where they work, for components of React. */

import {
  createContext,
  createElement,
  type ReactElement,
  type ReactNode,
  useContext,
  useEffect,
  useState,
  useSyncExternalStore,
} from 'react';
import type { QuotaView } from '../../generated/client/schemas.js';
import type { ActiveSession, SaasClient } from '../client/index.js';
import { createResource, type Loaded, type Resource } from './resource.js';

/** What a part of the page needs that uses the hooks. */
export interface SaasProviderProps {
  /** The client of the page. */
  client: SaasClient;
  /** What the server has read while it rendered the page; null for a visitor. Without it, the first hook asks. */
  session?: ActiveSession | null | undefined;
  /** The part of the page. */
  children?: ReactNode;
}

/** `loading` until it is known whether the user is signed in. */
export type Status = 'loading' | 'signed-in' | 'signed-out';

/** The members of a session that a hook returns: all of them, or null for a visitor and until they are known. */
export type Known<K extends keyof ActiveSession> =
  | ({ status: 'signed-in' } & Pick<ActiveSession, K>)
  | ({ status: 'loading' | 'signed-out' } & { [Name in K]: null });

/** What the result of a request can do. */
export interface Reloading {
  /** Asks the server again. */
  reload(): Promise<void>;
  /** Why the last request has failed: a `SaasError`. */
  error: unknown;
}

/** What a user may do by the plan. */
export interface PlanState {
  /** Whether the user is signed in. */
  status: Status;
  /** Of the active organization, or else of the user; null for a visitor. */
  plan: string | null;
  /** Whether a plan is paid for or granted. */
  entitled: boolean;
  /** The features of all that is held. */
  features: readonly string[];
}

/** What is left of a limit. */
export interface LimitState extends Reloading {
  /** Whether the user is signed in, and the use is known. */
  status: Status;
  /** Null for a visitor, and if no plan has this limit. `left` is null if there is no end. */
  limit: QuotaView | null;
}

interface SaasState {
  client: SaasClient;
  session: Resource<ActiveSession | null>;
  usage: Resource<QuotaView[]>;
  /** After everything that concerns another user or organization. */
  replace(): Promise<void>;
}

const Context = createContext<SaasState | undefined>(undefined);

const NOBODY = { user: null, session: null, organization: null, features: null };
const NOTHING = createResource<QuotaView[]>(async () => [], []);

function createState(client: SaasClient, given: ActiveSession | null | undefined): SaasState {
  const session = createResource(() => client.getSession(), given);
  const usage = createResource(() => client.billing.getUsage());
  return {
    client,
    session,
    usage,
    async replace() {
      usage.forget();
      await session.replace();
      if (session.get().value && usage.isShown()) await usage.reload();
    },
  };
}

/** Gives the hooks below it a client, and the session that the server has read. */
export function SaasProvider({ client, session, children }: SaasProviderProps): ReactElement {
  const [state] = useState(() => createState(client, session));
  useEffect(() => state.client.onChange(() => void state.replace()), [state]);
  useEffect(() => {
    if (session === undefined) return;
    state.session.set(session);
    state.client.assumeSession(session);
  }, [state, session]);
  return createElement(Context.Provider, { value: state }, children);
}

function useSaas(): SaasState {
  const state = useContext(Context);
  if (!state) throw new Error('A hook of saas-backend/react needs a <SaasProvider> around its component.');
  return state;
}

const useResource = <T>({ subscribe, get, getFirst }: Resource<T>): Loaded<T> =>
  useSyncExternalStore(subscribe, get, getFirst);

const statusOf = (value: unknown): Status =>
  value === undefined ? 'loading' : value === null ? 'signed-out' : 'signed-in';

/** Who is signed in, since when, and in which organization. */
export function useSession(): Known<keyof ActiveSession> & Reloading {
  const { session } = useSaas();
  const { value, error } = useResource(session);
  return { status: statusOf(value), ...(value ?? NOBODY), reload: session.reload, error } as Known<
    keyof ActiveSession
  > &
    Reloading;
}

/** The user. */
export function useUser(): Known<'user'> {
  const { status, user } = useSession();
  return { status, user } as Known<'user'>;
}

/** The plan of the active organization, or else of the user. */
export function usePlan(): PlanState {
  const { status, user, organization, features } = useSession();
  const { plan = null, entitled = false } = (organization ?? user)?.subscription ?? {};
  return { status, plan, entitled, features: features ?? [] };
}

/** What is used and left of a limit of the plans, such as `projects`. */
export function useLimit(name: string): LimitState {
  const { status } = useSession();
  const { usage } = useSaas();
  const { value, error } = useResource(status === 'signed-in' ? usage : NOTHING);
  const limit = value?.find((quota) => quota.name === name) ?? null;
  return { status: value ? status : 'loading', limit, reload: usage.reload, error };
}

/** The organization that is active in the session, and the function that chooses another one; null for none. */
export function useOrganization(): Known<'organization'> & {
  switchTo(organization: string | null): Promise<void>;
} {
  const { client, replace } = useSaas();
  const { status, organization } = useSession();
  const switchTo = async (chosen: string | null): Promise<void> => {
    await client.organizations.chooseOrganization({ organization: chosen });
    await replace();
  };
  return { status, organization, switchTo } as ReturnType<typeof useOrganization>;
}
