/** The events about connections that a host application can subscribe to. */
export interface AgentEvents {
  /** The user has connected an account of the identity provider: agents that they permit there can act here. */
  'agents.connected': { userId: string; issuer: string };
  /** The user has disconnected it, and the access of agents has ended. */
  'agents.disconnected': { userId: string; issuer: string };
}

export const AGENT_EVENTS: Record<keyof AgentEvents, true> = {
  'agents.connected': true,
  'agents.disconnected': true,
};
