/**
 * What Sonata learns from its user, as the page sees it: `engine.learning`. app/consolidation/api.py answers; this translates
 * what it says. Errors are as memory/client.js says.
 */
import { told } from '../i18n/engine_texts.js';
import { LearningCalls } from '../protocol_calls.js';

export class Learning extends LearningCalls {
  async overview() {
    const overview = await super.overview();
    if (overview.problem) overview.problem = told(overview.problem);
    if (overview.idle) overview.idle.sentence = told(overview.idle.sentence);
    for (const loop of overview.loops) loop.words = told(loop.words);
    for (const training of overview.trainings) training.why = told(training.why);
    return overview;
  }
}
