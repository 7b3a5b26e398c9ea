/** Draws events in their turn: those of a streaming answer, and those of a stored one. */

/** @typedef {import('../protocol.js').Event} Event */
/**
 * The parts of the engine that events are drawn with.
 * @typedef {{memory: import('../memory/client.js').Memory, learning: import('../learning/client.js').Learning,
 *   files: import('../protocol_calls.js').FilesCalls,
 *   conversation: import('../protocol_calls.js').ConversationCalls}} Services
 */

/**
 * An event that is not listed shows nothing in its turn.
 * @type {{[Type in Event['type']]?: (view: import('./turn_view.js').TurnView, event: Extract<Event, {type: Type}>,
 *   services: Services) => unknown}}
 */
const DRAWN = {
  route: (view, event, { memory }) => view.showRoute(event, memory),
  recall: (view, event, { learning }) => view.showLesson(event, learning),
  computation: (view, event) => view.showComputed(event),
  citations: (view, event, { files }) => view.showFiles(event, files),
  taught: (view, event, { learning }) => view.showTaught(event, learning),
  card: (view, event, { learning }) => view.showCard(event, learning),
  reading: (view, event) => view.showReading(event),
  thought: (view, event) => view.appendThought(event.text),
  delta: (view, event) => view.append(event.text),
  canvas: (view, event) => view.showCanvas(event),
  'tool-called': (view, event, { conversation }) => view.showCall(event, conversation),
  'tool-returned': (view, event) => view.showResult(event),
  replacement: (view, event) => view.replace(event),
  done: (view, event) => view.finish(event),
  stored: (view, event, { learning }) => event.request && view.offerFeedback(event.request, learning),
  offer: (view, event, { learning }) => event.chat && view.showOffer(event, learning, event.chat),
};

/**
 * @param {import('./turn_view.js').TurnView} view
 * @param {Event} event
 * @param {Services} services
 */
export function draw(view, event, services) {
  const drawn = /** @type {any} */ (DRAWN[event.type]);
  drawn?.(view, event, services);
}
