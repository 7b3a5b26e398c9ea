/** The texts in German; files and keys are those of English. */
import * as chat from './de/chat.js';
import * as files from './de/files.js';
import * as learned from './de/learned.js';
import * as learning from './de/learning.js';
import * as memory from './de/memory.js';
import * as model from './de/model.js';
import * as page from './de/page.js';
import * as panels from './de/panels.js';
import * as python from './de/python.js';
import * as settings from './de/settings.js';
import * as sidebar from './de/sidebar.js';
import * as storage from './de/storage.js';
import * as table from './de/table.js';

import { messages as engineMessages } from './de/engine.js';
import { workerMessages } from './de/workers.js';

export const messages = { ...engineMessages, ...workerMessages };
export const german = {
  ...chat, ...files, ...learned, ...learning, ...memory, ...model, ...page, ...panels, ...python, ...settings, ...sidebar, ...storage, ...table,
};
