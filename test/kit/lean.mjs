/**
 * Loaded into the process of each test file, before tap's own: leaves out what tap does there that no test here asks
 * for, and that takes a third of its time.
 */
import asyncHooks from 'node:async_hooks';
import module, { syncBuiltinESMExports } from 'node:module';

// By now Node has taken note of it. Programs that a test starts are to be what they are anywhere else.
delete process.env.NODE_OPTIONS;

// Which files were loaded, for `tap --changed` and for coverage: every import would wait for another thread.
process.env.__TAPJS_PROCESSINFO_TESTING_NO_REGISTER__ = String(process.pid);
module.register = module.registerHooks = () => undefined;

// Which test an uncaught error belongs to: every promise would be followed. Such an error fails its file without it.
asyncHooks.createHook = () => ({ enable() {}, disable() {} });

syncBuiltinESMExports();
