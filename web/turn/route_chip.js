/**
 * The chip of an answer that names its agent. Opened, a card says why it was chosen, and which agents were close. One click
 * sends similar messages to another agent from then on; a second one has that agent answer this message, too.
 */
import { floatPanel } from '../common/card.js';
import { button, element, ProblemLine } from '../common/dom.js';
import { formatMeasured, formatShare } from '../common/format.js';
import { PLAIN } from '../memory/client.js';
import { said } from '../i18n/engine_texts.js';
import { t } from '../i18n/i18n.js';

const NEIGHBOURS = 3;
const RANKED = 4;
const LEAST_SHARE = 0.005; // of an agent that is listed
const UNROUTED = ['chat', 'off']; // reasons for which no agent was searched, so that nothing can be corrected
const WHOSE = ['user', 'agent']; // sources of patterns that are mentioned

export class RouteChip {
  element = element('div', 'route');
  #route;
  /** @type {import('../memory/client.js').Memory} */ #memory;
  #titles = new Map(); // agent's id -> its title; filled when the chip is opened
  #correction = /** @type {{pattern: string, agent: string}|null} */ (null); // {pattern, agent} that a click taught
  #earlier; // the user's earlier feedback on exactly these words, if any
  #chip = element('summary', 'route-chip');
  #details = element('details', 'route-details');
  #panel = element('div', 'route-panel');
  #outcome = element('p', 'route-outcome');
  #problem = new ProblemLine();
  #onAgain;

  /**
   * @param {import('../protocol.js').Route} route
   * @param {import('../memory/client.js').Memory} memory
   * @param {(agent: string) => void} onAgain called if another answer is wanted, of this agent
   */
  constructor(route, memory, onAgain) {
    this.#onAgain = onAgain;
    this.#route = { ...route, title: said(route.title) };
    this.#memory = memory;
    this.#earlier = route.neighbours.find(({ source, text }) => source === 'user' && text === route.text);
    this.#titles.set(route.agent, this.#route.title);
    this.#outcome.setAttribute('role', 'status');
    this.#details.append(this.#chip, this.#panel);
    this.#details.addEventListener('toggle', () => this.#details.open && this.#explain());
    floatPanel(this.#details, this.#panel);
    this.element.append(this.#details, this.#outcome, this.#problem.element);
    this.#name();
  }

  /** Set the chip's own text. */
  #name() {
    const { agent, title, reason } = this.#route;
    const sent = this.#correction ? t('routing.willGo', { agent: this.#title(this.#correction.agent) }) : '';
    const plain = agent === PLAIN && !sent;
    const how = { 'follow-up': t('routing.followUp'), chosen: t('routing.chosen'), chat: t('routing.ofChat') }[reason];
    this.#chip.textContent = sent || (plain || !how ? title : `${title} · ${how}`);
    this.#chip.title = t(UNROUTED.includes(reason) ? 'routing.tooltipChat' : 'routing.tooltip');
    this.element.dataset.kind = sent ? 'corrected' : plain ? 'plain' : 'agent';
  }

  async #explain() {
    this.#problem.say(null);
    let agents = [];
    try {
      ({ agents } = await this.#memory.info());
    } catch (error) {
      this.#problem.say(error);
    }
    for (const { id, title } of agents) this.#titles.set(id, title);
    const isRouted = !UNROUTED.includes(this.#route.reason);
    this.#panel.replaceChildren(this.#why(), ...(isRouted ? [this.#choice(agents), ...this.#others(), this.#times()] : []));
  }

  #why() {
    const { agent, neighbours } = this.#route;
    const part = element('section');
    const near = neighbours.slice(0, NEIGHBOURS);
    part.append(element('h3', '', t('routing.why', { agent: this.#title(agent) })), element('p', 'route-reason', this.#reason()));
    if (near.length === 0) return part;
    part.append(element('p', 'route-lead', t('routing.nearest')));
    const list = element('ol', 'route-neighbours');
    for (const { text, agent: theirs, similarity, source } of near) {
      const item = element('li');
      const about = element('span', 'route-about');
      about.append(t('routing.similar', { agent: this.#title(theirs), share: formatShare(similarity) }));
      if (WHOSE.includes(source)) about.append(' ', element('b', `route-source ${source}`, t(`routing.whose_${source}`)));
      item.append(element('q', '', text), about);
      list.append(item);
    }
    part.append(list);
    return part;
  }

  /** One sentence about the decision, with the numbers of the list below it. */
  #reason() {
    const { agent, reason, confidence, ranked } = this.#route;
    const title = this.#title(agent), sure = formatShare(confidence);
    switch (reason) {
      case 'follow-up':
        return t('routing.whyFollowUp', { agent: title });
      case 'chosen':
        return t('routing.whyChosen', { agent: title });
      case 'chat':
        return agent === PLAIN ? t('routing.whyNobody') : t('routing.whyChat', { agent: title });
      case 'off':
        return t('routing.whyOff');
      case 'correction':
        return t('routing.whyCorrection', { agent: title });
      case 'wording':
        return t('routing.whyWording', { agent: title, share: sure });
      case 'examples':
        return t('routing.whyExamples', { agent: title, share: sure });
      case 'language':
        return t('routing.whyLanguage');
      default: {
        const none = t('routing.whyNone');
        return ranked.length && confidence >= LEAST_SHARE ? `${none} ${t('routing.whyBest', { agent: this.#title(ranked[0][0]), share: sure })}` : none;
      }
    }
  }

  #others() {
    const ranked = this.#route.ranked.slice(0, RANKED).filter(([, share]) => share >= LEAST_SHARE);
    if (ranked.length === 0) return [];
    const alone = this.#route.reason === 'follow-up';
    const list = element('ul', 'route-ranked');
    for (const [agent, share] of ranked) {
      const bar = element('span', 'route-bar');
      bar.style.inlineSize = `${100 * share}%`;
      const track = element('span', 'route-track');
      track.append(bar);
      const item = element('li');
      item.append(element('span', '', this.#title(agent)), track, element('span', 'route-share', formatShare(share)));
      list.append(item);
    }
    const part = element('section');
    part.append(element('h3', '', t(alone ? 'routing.likelyAlone' : 'routing.likely')), list);
    return [part];
  }

  #times() {
    const steps = Object.entries(this.#route.ms);
    const total = steps.reduce((sum, [, ms]) => sum + ms, 0);
    const each = steps.map(([step, ms]) => `${t(`stages.${step}`)} ${formatMeasured(ms)}`).join(', ');
    return element('p', 'route-times', t('routing.times', { total: formatMeasured(total), each }));
  }

  #choice(agents) {
    const now = this.#correction?.agent ?? this.#route.agent;
    const part = element('section');
    const group = element('div', 'route-agents');
    group.setAttribute('role', 'group');
    group.setAttribute('aria-label', t('routing.sendTo'));
    for (const { id, title } of agents) {
      const choose = button(title, 'quiet', () => this.#correct(id));
      choose.disabled = id === now;
      group.append(choose);
    }
    if (agents.length) part.append(element('h3', '', t('routing.sendTo')), group);
    if (!this.#correction) part.append(button(t('routing.confirm'), 'quiet route-confirm', () => this.#confirm()));
    return part;
  }

  async #correct(agent) {
    const before = this.#correction?.pattern;
    await this.#try(async () => {
      const { pattern } = await this.#memory.correct({ id: this.#route.id, text: this.#route.text, agent });
      if (before && before !== pattern) await this.#memory.removePatterns({ ids: [before] });
      this.#correction = { pattern, agent };
      const again = t('answers.againAs', { agent: this.#title(agent) });
      this.#outcome.replaceChildren(
        button(again, 'link', () => this.#onAgain(agent)), button(t('forms.undo'), 'link', () => this.#undo()),
      );
      this.#close();
    });
  }

  async #undo() {
    await this.#try(async () => {
      const { id, text } = this.#route;
      await this.#memory.takeBack({ id });
      if (this.#earlier) await this.#memory.correct({ id: '', text, agent: this.#earlier.agent });
      else await this.#memory.removePatterns({ ids: [/** @type {{pattern: string}} */ (this.#correction).pattern] });
      this.#correction = null;
      this.#outcome.replaceChildren(t('routing.undone'));
      this.#close();
    });
  }

  async #confirm() {
    await this.#try(async () => {
      await this.#memory.confirm({ id: this.#route.id });
      this.#outcome.replaceChildren(t('routing.confirmed'));
      this.#close();
    });
  }

  /** Runs one action at a time; a failure is shown, and the action can be tried again. */
  async #try(action) {
    const pressed = /** @type {HTMLElement} */ (document.activeElement);
    this.#problem.say(null);
    this.element.inert = true; // which loses the focus
    try {
      await action();
    } catch (error) {
      this.#problem.say(error);
    }
    this.element.inert = false;
    (pressed.isConnected && this.#details.open ? pressed : this.#chip).focus({ preventScroll: true });
  }

  #close() {
    this.#name();
    this.#details.open = false;
  }

  #title(agent) {
    return this.#titles.get(agent) ?? agent;
  }
}
