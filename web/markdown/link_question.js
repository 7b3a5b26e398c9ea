/** A link of an answer asks before it opens another site: it shows the whole address, whatever the link's text says. */
import { html } from '../vendor/lit-html/lit-html.js';
import { openCard } from '../common/card.js';
import { button } from '../common/dom.js';
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
  const copy = ({ currentTarget }) => copyText(() => href, currentTarget, t('answers.linkCopy'));
  const content = html`
    <p>${t(link.dataset.image ? 'answers.imageLead' : 'answers.linkLead')}</p>
    <p class="link-address" dir="ltr">${partsOf(href)}</p>
    <div class="link-actions">
      <a href=${href} target="_blank" rel="noopener noreferrer nofollow" @click=${() => setTimeout(() => close())}>${t('answers.linkOpen')}</a>
      ${button(t('answers.linkCopy'), 'quiet', copy)}
    </div>`;
  const close = openCard(link, { label: t('answers.linkTitle'), className: 'link-question', content, focus: 'a' });
}

/** The address with its host emphasized: that is the part that matters. */
function partsOf(href) {
  const { host } = new URL(href);
  const at = host ? href.indexOf(host) : -1;
  return at < 0 ? href : html`${href.slice(0, at)}<b>${host}</b>${href.slice(at + host.length)}`;
}
