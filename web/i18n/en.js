/** The texts in English. A file is a part of the page, each of its exports a section: i18n.js says more. */
import * as chat from './en/chat.js';
import * as files from './en/files.js';
import * as learned from './en/learned.js';
import * as learning from './en/learning.js';
import * as memory from './en/memory.js';
import * as model from './en/model.js';
import * as page from './en/page.js';
import * as panels from './en/panels.js';
import * as python from './en/python.js';
import * as settings from './en/settings.js';
import * as sidebar from './en/sidebar.js';
import * as storage from './en/storage.js';
import * as table from './en/table.js';

export const english = {
  ...chat, ...files, ...learned, ...learning, ...memory, ...model, ...page, ...panels, ...python, ...settings, ...sidebar, ...storage, ...table,
};
