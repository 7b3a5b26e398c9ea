/** A link of an answer asks before it opens another site: it shows the whole address, whatever the link's text says. */
import { openCard } from '../common/card.js';
import { button, element } from '../common/dom.js';
import { t } from '../i18n/i18n.js';
import { copyText } from './clipboard.js';

/** @param {HTMLElement} log the element that holds the answers */
export function askBeforeLinks(log) {
  const onClick = (event) => {
    const link = event.target instanceof Element ? event.target.closest('.answer a[href]') : null;
    if (!(link instanceof HTMLAnchorElement) || event.button > 1) return;
    event.preventDefault();
    ask(link);
  };
  log.addEventListener('click', onClick);
  log.addEventListener('auxclick', onClick); // the middle button
}

/** @param {HTMLAnchorElement} link */
function ask(link) {
  const { href } = link;
  const address = element('p', 'link-address');
  address.dir = 'ltr';
  address.append(...partsOf(href));
  const open = element('a', '', t('answers.linkOpen'));
  Object.assign(open, { href, target: '_blank', rel: 'noopener noreferrer nofollow' });
  open.addEventListener('click', () => setTimeout(() => close()));
  const copy = button(t('answers.linkCopy'), 'quiet', () => copyText(() => href, copy, t('answers.linkCopy')));
  const actions = element('div', 'link-actions');
  actions.append(open, copy);
  const lead = element('p', '', t(link.dataset.image ? 'answers.imageLead' : 'answers.linkLead'));
  const close = openCard(link, { label: t('answers.linkTitle'), className: 'link-question', content: [lead, address, actions], focus: open });
}

/** The address with its host emphasized: that is the part that matters. */
function partsOf(href) {
  const { host } = new URL(href);
  const at = host ? href.indexOf(host) : -1;
  return at < 0 ? [href] : [href.slice(0, at), element('b', '', host), href.slice(at + host.length)];
}
