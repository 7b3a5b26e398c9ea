/** Groups the chats of the side bar by the time of their last message. */
import { currentLanguage, t } from '../i18n/i18n.js';

const DAY = 24 * 60 * 60 * 1000;

/**
 * @param {import('../protocol_calls.js').StoredConversation[]} chats the newest first
 * @param {Date} now
 * @returns {{key: string, title: string, chats: import('../protocol_calls.js').StoredConversation[]}[]} none is empty: those
 *   that are gone when the page closes, the pinned ones, today's, yesterday's, those of 7 and of 30 days, then by months. Those in the archive are in none.
 */
export function grouped(chats, now = new Date()) {
  const today = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const month = new Intl.DateTimeFormat(currentLanguage(), { month: 'long', year: 'numeric' });
  const groups = new Map();
  const add = (key, title, chat) => {
    if (!groups.has(key)) groups.set(key, { key, title: title(), chats: [] });
    groups.get(key).chats.push(chat);
  };
  const seen = chats.filter((chat) => !chat.archived);
  for (const chat of seen) if (!chat.kept) add('unkept', () => t('sidebar.unkept'), chat);
  for (const chat of seen) if (chat.kept && chat.pinned) add('pinned', () => t('sidebar.pinned'), chat);
  for (const chat of seen) {
    if (!chat.kept || chat.pinned) continue;
    const said = new Date(chat.said * 1000);
    const days = Math.ceil((today - said.getTime()) / DAY); // midnights between then and now
    if (days <= 0) add('today', () => t('sidebar.today'), chat);
    else if (days === 1) add('yesterday', () => t('sidebar.yesterday'), chat);
    else if (days <= 7) add('week', () => t('sidebar.week'), chat);
    else if (days <= 30) add('month', () => t('sidebar.days30'), chat);
    else add(`${said.getFullYear()}-${said.getMonth()}`, () => month.format(said), chat);
  }
  return [...groups.values()];
}
