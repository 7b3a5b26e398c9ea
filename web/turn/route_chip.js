/**
 * The chip of an answer that names its agent. Opened, a card says why it was chosen, and which agents were close. One click
 * sends similar messages to another agent from then on; a second one has that agent answer this message, too.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { floatPanel } from '../common/card.js';
import { button, element, part, ProblemLine } from '../common/dom.js';
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
  #agents = /** @type {{id: string, title: string}[]|null} */ (null); // null: the chip was not opened yet
  #outcome = /** @type {unknown} */ (''); // a sentence or a template
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
    this.#draw();
    floatPanel(this.#details, part(this.element, '.route-panel', HTMLElement));
  }

  get #details() {
    return part(this.element, 'details', HTMLDetailsElement);
  }

  #draw() {
    const { agent, title, reason } = this.#route;
    const sent = this.#correction ? t('routing.willGo', { agent: this.#title(this.#correction.agent) }) : '';
    const plain = agent === PLAIN && !sent;
    const how = { 'follow-up': t('routing.followUp'), chosen: t('routing.chosen'), chat: t('routing.ofChat') }[reason];
    const isRouted = !UNROUTED.includes(reason);
    this.element.dataset.kind = sent ? 'corrected' : plain ? 'plain' : 'agent';
    render(html`
      <details class="route-details" @toggle=${(event) => event.target.open && this.#explain()}>
        <summary class="route-chip" title=${t(isRouted ? 'routing.tooltip' : 'routing.tooltipChat')}>${
          sent || (plain || !how ? title : `${title} · ${how}`)}</summary>
        <div class="route-panel">${this.#agents ? html`
          ${this.#why()}${isRouted ? [this.#choice(this.#agents), this.#others(), this.#times()] : nothing}` : nothing}</div>
      </details>
      <p class="route-outcome" role="status">${this.#outcome}</p>
      ${this.#problem.element}`, this.element);
  }

  async #explain() {
    this.#problem.say(null);
    try {
      ({ agents: this.#agents } = await this.#memory.info());
    } catch (error) {
      this.#agents ??= [];
      this.#problem.say(error);
    }
    for (const { id, title } of this.#agents ?? []) this.#titles.set(id, title);
    this.#draw();
  }

  #why() {
    const { agent, neighbours } = this.#route;
    const near = neighbours.slice(0, NEIGHBOURS);
    return html`
      <section>
        <h3>${t('routing.why', { agent: this.#title(agent) })}</h3>
        <p class="route-reason">${this.#reason()}</p>
        ${near.length ? html`
          <p class="route-lead">${t('routing.nearest')}</p>
          <ol class="route-neighbours">${near.map((one) => this.#neighbour(one))}</ol>` : nothing}
      </section>`;
  }

  #neighbour({ text, agent, similarity, source }) {
    const whose = WHOSE.includes(source) ? html` <b class="route-source ${source}">${t(`routing.whose_${source}`)}</b>` : nothing;
    return html`<li><q>${text}</q><span class="route-about">${
      t('routing.similar', { agent: this.#title(agent), share: formatShare(similarity) })}${whose}</span></li>`;
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
    if (ranked.length === 0) return nothing;
    const alone = this.#route.reason === 'follow-up';
    return html`
      <section>
        <h3>${t(alone ? 'routing.likelyAlone' : 'routing.likely')}</h3>
        <ul class="route-ranked">${ranked.map(([agent, share]) => html`
          <li><span>${this.#title(agent)}</span><span class="route-track"><span class="route-bar" .style=${`inline-size: ${100 * share}%`}></span></span><span
            class="route-share">${formatShare(share)}</span></li>`)}</ul>
      </section>`;
  }

  #times() {
    const steps = Object.entries(this.#route.ms);
    const total = steps.reduce((sum, [, ms]) => sum + ms, 0);
    const each = steps.map(([step, ms]) => `${t(`stages.${step}`)} ${formatMeasured(ms)}`).join(', ');
    return html`<p class="route-times">${t('routing.times', { total: formatMeasured(total), each })}</p>`;
  }

  #choice(agents) {
    const now = this.#correction?.agent ?? this.#route.agent;
    return html`
      <section>
        ${agents.length ? html`
          <h3>${t('routing.sendTo')}</h3>
          <div class="route-agents" role="group" aria-label=${t('routing.sendTo')}>${agents.map(({ id, title }) => html`
            <button type="button" class="quiet" ?disabled=${id === now} @click=${() => this.#correct(id)}>${title}</button>`)}</div>` : nothing}
        ${this.#correction ? nothing : button(t('routing.confirm'), 'quiet route-confirm', () => this.#confirm())}
      </section>`;
  }

  async #correct(agent) {
    const before = this.#correction?.pattern;
    await this.#try(async () => {
      const { pattern } = await this.#memory.correct({ id: this.#route.id, text: this.#route.text, agent });
      if (before && before !== pattern) await this.#memory.removePatterns({ ids: [before] });
      this.#correction = { pattern, agent };
      const again = t('answers.againAs', { agent: this.#title(agent) });
      this.#close([button(again, 'link', () => this.#onAgain(agent)), button(t('forms.undo'), 'link', () => this.#undo())]);
    });
  }

  async #undo() {
    await this.#try(async () => {
      const { id, text } = this.#route;
      await this.#memory.takeBack({ id });
      if (this.#earlier) await this.#memory.correct({ id: '', text, agent: this.#earlier.agent });
      else await this.#memory.removePatterns({ ids: [/** @type {{pattern: string}} */ (this.#correction).pattern] });
      this.#correction = null;
      this.#close(t('routing.undone'));
    });
  }

  async #confirm() {
    await this.#try(async () => {
      await this.#memory.confirm({ id: this.#route.id });
      this.#close(t('routing.confirmed'));
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
    (pressed.isConnected && this.#details.open ? pressed : part(this.element, 'summary', HTMLElement)).focus({ preventScroll: true });
  }

  /** @param {unknown} outcome a sentence or a template */
  #close(outcome) {
    this.#outcome = outcome;
    this.#draw();
    this.#details.open = false;
  }

  #title(agent) {
    return this.#titles.get(agent) ?? agent;
  }
}
