/**
 * The page's view of learning: `engine.learning`. app/consolidation/api.py answers; this translates
 * its messages. Errors are as memory/client.js says.
 */
import { said } from '../i18n/engine_texts.js';
import { LearningCalls } from '../protocol_calls.js';

export class Learning extends LearningCalls {
  /** @returns {Promise<import('../i18n/engine_texts.js').Said<import('../protocol_calls.js').Overview>>} */
  async overview() {
    const overview = /** @type {any} */ (await super.overview());
    if (overview.problem) overview.problem = said(overview.problem);
    if (overview.idle) overview.idle.sentence = said(overview.idle.sentence);
    for (const loop of overview.loops) loop.words = loop.words.map(said);
    for (const training of overview.trainings) training.why = said(training.why);
    return overview;
  }
}
