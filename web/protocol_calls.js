/** Made of app/page/session.py: Apis by the build (app/building/page_protocol.py): change it there. */

/**
 * failed: `result` is a sentence about why.
 * @typedef {object} ToolResult
 * @property {string} result
 * @property {boolean} failed
 */

/**
 * total: the number of all conversations that were found.
 * @typedef {object} ConversationPage
 * @property {number} total
 * @property {StoredConversation[]} items
 */

/**
 * turns: of all branches. titled: by whom, "" if the title is the first words. said: when the last turn came. kept: it
 * is there when the page starts again. snippet, similarity: with a search, the message that was found and how similar
 * it is.
 * @typedef {object} StoredConversation
 * @property {string} id
 * @property {string} title
 * @property {number} turns
 * @property {boolean} pinned
 * @property {boolean} archived
 * @property {''|'model'|'user'} titled
 * @property {number} said
 * @property {number} created
 * @property {number} updated
 * @property {boolean} kept
 * @property {Snippet|null} [snippet]
 * @property {number} [similarity]
 */

/**
 * turns: the turns that are shown, see `choose`. kept: as in StoredConversation.
 * @typedef {object} ShownConversation
 * @property {string} id
 * @property {string} title
 * @property {import('./protocol.js').StoredTurn[]} turns
 * @property {boolean} kept
 */

/**
 * agent: the id of the agent that answers in a chat, "" if each message is routed. chosen: by the user, for the chat.
 * isLost: that agent does not exist any more. agents: all, none if the routing is not ready.
 * @typedef {object} ChatAgent
 * @property {string} agent
 * @property {string|null} chosen
 * @property {boolean} isLost
 * @property {AgentName[]} agents
 * @property {'opening'|'ready'|'locked'|'failed'|'off'} routing
 */

/**
 * problem, uncompacted, suspicion: sentences.
 * @typedef {object} MemoryInfo
 * @property {'opening'|'ready'|'locked'|'failed'|'off'} state
 * @property {'opening'|'ready'|'locked'|'failed'|'off'} routing
 * @property {'opening'|'ready'|'locked'|'failed'|'off'} learning
 * @property {import('./protocol.js').Message|string|null} problem
 * @property {boolean} persistent
 * @property {string} place
 * @property {boolean} encrypted
 * @property {number} unreadable
 * @property {AgentName[]} agents
 * @property {import('./protocol.js').Message|string|null} uncompacted
 * @property {import('./protocol.js').Message|string|null} suspicion
 */

/**
 * Bytes of the conversations' stored keys and values (None if none are kept), and the limit.
 * @typedef {object} KeptBytes
 * @property {number|null} bytes
 * @property {number} most
 */

/**
 * The id of the pattern that the router learned.
 * @typedef {object} CorrectedRoute
 * @property {string} pattern
 */

/**
 * total: of all that were found.
 * @typedef {object} Entries
 * @property {number} total
 * @property {Record<string, any>[]} items
 */

/**
 * points: x, y, the number of its agent, source, text, id.
 * @typedef {object} PatternMap
 * @property {string[]} agents
 * @property {[number, number, number, string, string, string][]} points
 */

/**
 * percentiles: milliseconds of each stage, by percentile. trends: by stage. agents: how many answers each gave.
 * @typedef {object} Statistics
 * @property {Record<string, Record<string, number>>} percentiles
 * @property {Record<string, StageTrend>} trends
 * @property {[string, number][]} agents
 * @property {SpeedGroup[]} speeds
 */

/**
 * leftOut: could not be read.
 * @typedef {object} ImportedItems
 * @property {number} written
 * @property {number} leftOut
 */

/**
 * As app.chat.history.files.ImportedChats.
 * @typedef {object} ImportedChatFile
 * @property {number} chats
 * @property {number} messages
 * @property {number} leftOut
 * @property {number} unread
 */

/**
 * off: whether the lesson that gave the answer was switched off by this.
 * @typedef {object} Judged
 * @property {boolean} off
 */

/**
 * nllBefore, nllAfter: None if the model learns it later, in a pause. replaced: the earlier answer to the same
 * question. known: exactly the same was taught before.
 * @typedef {object} TaughtLesson
 * @property {LessonView} lesson
 * @property {number|null} ms
 * @property {number|null} nllBefore
 * @property {number|null} nllAfter
 * @property {LessonView|null} replaced
 * @property {boolean} known
 */

/**
 * replacedBy: the id of a newer lesson for the same question, "" for none. similarity: to the search text.
 * @typedef {object} LessonView
 * @property {string} id
 * @property {string} question
 * @property {string} answer
 * @property {'taught'|'corrected'|'praised'} source
 * @property {boolean} on
 * @property {string} replacedBy
 * @property {number} quality
 * @property {number} uses
 * @property {number} created
 * @property {number} lastUsed
 * @property {number|null} similarity
 */

/**
 * before: None if it was not kept. earlier: the answers that were taught for the same question, the oldest first. last:
 * the latest answer that the lesson gave. nllBefore, nllAfter: None if the model has not learned it.
 * @typedef {object} Story
 * @property {string} question
 * @property {string} answer
 * @property {'taught'|'corrected'|'praised'} source
 * @property {number} created
 * @property {Before|null} before
 * @property {Given[]} earlier
 * @property {Given|null} last
 * @property {number|null} nllBefore
 * @property {number|null} nllAfter
 */

/**
 * total: of all that were found.
 * @typedef {object} LessonPage
 * @property {number} total
 * @property {LessonView[]} items
 */

/**
 * The content of the Learning view. problem: why nothing can be learned now. idle: the loop that learns in pauses, and
 * its progress. lessons: the latest that this model has learned; all lists have the oldest first.
 * @typedef {object} Overview
 * @property {import('./protocol.js').Message|string|null} problem
 * @property {IdleStatus|null} idle
 * @property {LoopView[]} loops
 * @property {LearnedLesson[]} lessons
 * @property {TrainingView[]} trainings
 * @property {Period[]} answers
 * @property {LearningEvent[]} events
 */

/**
 * kind: "learned" (of a training; id: of its run), "reader" (comes with Sonata), "chosen" (the user's file; id: its
 * name). on: whether answers come with it now. older: a newer training took its place. facts: the questions that it was
 * learned from; count: how many texts. tests: (name, before, after), on texts that it was not learned from, except for
 * "recall".
 * @typedef {object} AdapterView
 * @property {number|null} bytes
 * @property {number|null} rank
 * @property {[number, number][]} norms
 * @property {number|null} norm
 * @property {'learned'|'reader'|'chosen'} kind
 * @property {string} id
 * @property {boolean} on
 * @property {boolean} older
 * @property {number|null} created
 * @property {string[]} facts
 * @property {number} count
 * @property {([string, number|null, number])[]} tests
 */

/**
 * A file by its id, and the conversation's.
 * @typedef {object} Attached
 * @property {string} chat
 * @property {string} id
 */

/**
 * size: bytes. indexed: the number of its passages that can be found by meaning. comes: true if the others are being
 * indexed in the background.
 * @typedef {object} AttachedFile
 * @property {string} id
 * @property {string} name
 * @property {string} type
 * @property {number} size
 * @property {number} passages
 * @property {number} indexed
 * @property {boolean} comes
 */

/**
 * The first rows and columns of a table, and up to three questions.
 * @typedef {object} TableLook
 * @property {string} name
 * @property {LookColumn[]} columns
 * @property {string[][]} rows
 * @property {number} row_count
 * @property {number} column_count
 * @property {LookQuestion[]} questions
 */

/**
 * kind: "text", "number", "date", "email", "phone" or "choice". choices: the words of a choice.
 * @typedef {object} TableColumn
 * @property {string} name
 * @property {string} kind
 * @property {string[]} [choices]
 */

/**
 * Rows that were found, and how far the reading is, from 0 to 1.
 * @typedef {object} TableNews
 * @property {TableCell[][]} rows
 * @property {number} done
 */

/**
 * A call that the page should run. isOver: nobody waits for its answer any more; the rest is as before.
 * @typedef {object} ToolAsk
 * @property {string} id
 * @property {string} source
 * @property {string} name
 * @property {Record<string, any>} arguments
 * @property {boolean} isOver
 */

/**
 * Bytes. pages: by tier. limit: the most that all of it may take, None if no limit was set.
 * @typedef {object} ModelMemory
 * @property {number} weights
 * @property {number} adapters
 * @property {number} scratch
 * @property {Record<string, PageMemory>} pages
 * @property {number} draft
 * @property {number|null} limit
 * @property {number} total
 */

/**
 * `tokens` are all sampled tokens, the end token included. Rates are tokens a second. `passes`: of a model of
 * diffusion, 0 for others.
 * @typedef {object} Completion
 * @property {number[]} promptTokens
 * @property {number[]} tokens
 * @property {string} text
 * @property {string} backend
 * @property {string} adapter
 * @property {number} prefillTokS
 * @property {number} decodeTokS
 * @property {string} reason
 * @property {number} passes
 */

/**
 * calls: {name, arguments}. text: what is no call. bad: what only looks like one ({tool, why}). tokens: of the answer.
 * @typedef {object} CallsMade
 * @property {Record<string, any>[]} calls
 * @property {string} text
 * @property {Record<string, any>[]} bad
 * @property {number} tokens
 */

/**
 * done: how far a measurement is, from 0, when its turn has come, to 1. report: of app.generation.speed.profile_report,
 * once it is there.
 * @typedef {object} Measured
 * @property {number} done
 * @property {Record<string, any>|null} report
 */

/**
 * A part of a reply. status: of the first that has something to say, with its headers. text: more of the body.
 * @typedef {object} ApiPart
 * @property {number|null} status
 * @property {Record<string, string>} headers
 * @property {string} text
 */

/**
 * A message that a search found. parts: pieces of its text, each with True if it is a match.
 * @typedef {object} Snippet
 * @property {string} role
 * @property {[string, boolean][]} parts
 */

/**
 * An agent, and its name.
 * @typedef {object} AgentName
 * @property {string} id
 * @property {import('./protocol.js').Message|string} title
 */

/**
 * As py_core.store.witness_questions.Trend.
 * @typedef {object} StageTrend
 * @property {[number, number][]} medians
 * @property {number} change
 */

/**
 * Answers in a row. created: of the last one. tokS: the median of tokens a second, None if no answer was long enough.
 * first: milliseconds until the first token, by percentile.
 * @typedef {object} SpeedGroup
 * @property {number} created
 * @property {number} count
 * @property {number|null} tokS
 * @property {Record<string, number>} first
 */

/**
 * cut: only the beginning of the answer was kept.
 * @typedef {object} Before
 * @property {string} text
 * @property {boolean} cut
 */

/**
 * An answer, and when it was given.
 * @typedef {object} Given
 * @property {string} text
 * @property {number} created
 */

/**
 * sentence: for the user. loop: the loop that it is about, "" for all. done, total: tokens of the run. secondsLeft:
 * None if it is not known yet. what: the current step, from the loop's `Report`.
 * @typedef {object} IdleStatus
 * @property {'off'|'paused'|'battery'|'learned'|'waiting'|'elsewhere'|'held'|'running'|'failed'} state
 * @property {import('./protocol.js').Message|string} sentence
 * @property {string} loop
 * @property {number} done
 * @property {number} total
 * @property {number|null} secondsLeft
 * @property {import('./protocol.js').Message|string} what
 */

/**
 * runs: whether it runs in pauses, and can be asked to run now.
 * @typedef {object} LoopView
 * @property {string} name
 * @property {boolean} on
 * @property {(import('./protocol.js').Message|string)[]} words
 * @property {boolean} runs
 */

/**
 * A lesson that the model has learned.
 * @typedef {object} LearnedLesson
 * @property {string} question
 * @property {number} nllBefore
 * @property {number} nllAfter
 */

/**
 * A run of the loop "background": app.records.revisions.Run.
 * @typedef {object} TrainingView
 * @property {number} created
 * @property {'accepted'|'scaled'|'refused'} verdict
 * @property {import('./protocol.js').Message|string} why
 * @property {number[]} losses
 * @property {Record<string, number>} probe
 * @property {Record<string, number>} recall
 * @property {number} norm
 * @property {number} tokens
 * @property {number} seconds
 */

/**
 * Answers of a day or a week. created: its beginning; days: 1 or 7. count: its answers. good, bad, corrected: the
 * person's feedback. quality: the mean of the answers that the person judged, 0 to 1. helped: answers from a lesson
 * without a complaint.
 * @typedef {object} Period
 * @property {number} created
 * @property {number} days
 * @property {number} count
 * @property {number} good
 * @property {number} bad
 * @property {number} corrected
 * @property {number} helped
 * @property {number|null} quality
 */

/**
 * A loop did something: "instant" (kind: taught, corrected, praised; text: the question), "background" (accepted,
 * scaled, refused; count: new facts), "deep" (done; count: answers).
 * @typedef {object} LearningEvent
 * @property {number} created
 * @property {'instant'|'background'|'deep'} loop
 * @property {string} kind
 * @property {number} count
 * @property {string} text
 */

/**
 * A column of a table. kind: number, date, group (few values, each in several rows) or text.
 * @typedef {object} LookColumn
 * @property {string} name
 * @property {string} kind
 */

/**
 * A question that fits a table: its form, with the names of columns that it is about.
 * @typedef {object} LookQuestion
 * @property {string} form
 * @property {string} number
 * @property {string} group
 */

/**
 * value: as in the text; of a number as in JSON; "" if the text does not say it. start, end: where it stands in the
 * text, in UTF-16 code units, None if it does not stand there word by word.
 * @typedef {object} TableCell
 * @property {string} value
 * @property {number|null} start
 * @property {number|null} end
 */

/**
 * Bytes that conversations hold, that are kept for the next conversations, and that are free.
 * @typedef {object} PageMemory
 * @property {number} conversations
 * @property {number} kept
 * @property {number} free
 */

/**
 * @typedef {object} Remote
 * @property {(api: string, method: string, args: object) => Promise<any>} call
 * @property {(api: string, method: string, args: object) => Promise<AsyncIterableIterator<any>>} stream what a call
 * gives, one after the other; whoever leaves it before its end stops the call
 */

class Calls {
  /** @param {Remote} to */
  constructor(to) { this.to = to; }
}

/** app/page/conversation.py says what each call does. */
export class ConversationCalls extends Calls {
  /** @param {{text: string, after?: number|'leaf'|null, agent?: string|null, choice?: string|null, table?: string|null}} given @returns {Promise<AsyncIterableIterator<import('./protocol.js').Event>>} */
  respond(given) { return this.to.stream('conversation', 'respond', given); }

  /** @param {{after?: number|null, agent?: string|null, choice?: string|null}} [given] @returns {Promise<AsyncIterableIterator<import('./protocol.js').Event>>} */
  retry(given = {}) { return this.to.stream('conversation', 'retry', given); }

  /** @returns {Promise<AsyncIterableIterator<import('./protocol.js').Event>>} */
  continueAnswer() { return this.to.stream('conversation', 'continueAnswer', {}); }

  /** @param {{name: string, given: Record<string, any>}} given @returns {Promise<ToolResult>} */
  callTool(given) { return this.to.call('conversation', 'callTool', given); }

  /** @param {{id: string, learned: boolean}} given @returns {Promise<AsyncIterableIterator<import('./protocol.js').Event>>} */
  tryLesson(given) { return this.to.stream('conversation', 'tryLesson', given); }

  /** @returns {Promise<void>} */
  stop() { return this.to.call('conversation', 'stop', {}); }

  /** @returns {Promise<void>} */
  begin() { return this.to.call('conversation', 'begin', {}); }

  /** @param {{id: string}} given @returns {Promise<import('./protocol.js').StoredTurn[]>} */
  resume(given) { return this.to.call('conversation', 'resume', given); }
}

/** app/memory/api.py says what each call does. */
export class MemoryCalls extends Calls {
  /** @param {{search?: string, offset?: number, limit?: number|null}} [given] @returns {Promise<ConversationPage>} */
  conversations(given = {}) { return this.to.call('memory', 'conversations', given); }

  /** @param {{search: string}} given @returns {Promise<StoredConversation[]>} */
  similarConversations(given) { return this.to.call('memory', 'similarConversations', given); }

  /** @returns {Promise<void>} */
  prepareSearch() { return this.to.call('memory', 'prepareSearch', {}); }

  /** @param {{id: string}} given @returns {Promise<ShownConversation>} */
  conversation(given) { return this.to.call('memory', 'conversation', given); }

  /** @param {{id: string, number: number}} given @returns {Promise<ShownConversation>} */
  choose(given) { return this.to.call('memory', 'choose', given); }

  /** @param {{id: string|null}} given @returns {Promise<ChatAgent>} */
  agentChoice(given) { return this.to.call('memory', 'agentChoice', given); }

  /** @param {{id: string, agent: string}} given @returns {Promise<void>} */
  chooseAgent(given) { return this.to.call('memory', 'chooseAgent', given); }

  /** @param {{id: string, title: string}} given @returns {Promise<void>} */
  renameConversation(given) { return this.to.call('memory', 'renameConversation', given); }

  /** @param {{id: string, pinned: boolean}} given @returns {Promise<void>} */
  pinConversation(given) { return this.to.call('memory', 'pinConversation', given); }

  /** @param {{id: string, archived: boolean}} given @returns {Promise<void>} */
  archiveConversation(given) { return this.to.call('memory', 'archiveConversation', given); }

  /** @param {{ids: string[]}} given @returns {Promise<void>} */
  removeConversations(given) { return this.to.call('memory', 'removeConversations', given); }

  /** @returns {Promise<void>} */
  restoreConversations() { return this.to.call('memory', 'restoreConversations', {}); }

  /** @returns {Promise<void>} */
  forgetRemoved() { return this.to.call('memory', 'forgetRemoved', {}); }

  /** @param {{id: string, form: 'markdown'|'json'}} given @returns {Promise<string>} */
  exportConversation(given) { return this.to.call('memory', 'exportConversation', given); }

  /** @returns {Promise<MemoryInfo>} */
  info() { return this.to.call('memory', 'info', {}); }

  /** @returns {Promise<Record<string, number>>} */
  counts() { return this.to.call('memory', 'counts', {}); }

  /** @returns {Promise<KeptBytes>} */
  keptPages() { return this.to.call('memory', 'keptPages', {}); }

  /** @returns {Promise<void>} */
  removeKeptPages() { return this.to.call('memory', 'removeKeptPages', {}); }

  /** @param {{id: string, text: string, agent: string}} given @returns {Promise<CorrectedRoute>} */
  correct(given) { return this.to.call('memory', 'correct', given); }

  /** @param {{id: string}} given @returns {Promise<void>} */
  confirm(given) { return this.to.call('memory', 'confirm', given); }

  /** @param {{id: string}} given @returns {Promise<void>} */
  takeBack(given) { return this.to.call('memory', 'takeBack', given); }

  /** @param {{search?: string, agent?: string|null, offset?: number, limit?: number}} [given] @returns {Promise<Entries>} */
  patterns(given = {}) { return this.to.call('memory', 'patterns', given); }

  /** @param {{id: string, text: string, agent: string}} given @returns {Promise<CorrectedRoute>} */
  editPattern(given) { return this.to.call('memory', 'editPattern', given); }

  /** @param {{ids: string[]}} given @returns {Promise<void>} */
  removePatterns(given) { return this.to.call('memory', 'removePatterns', given); }

  /** @returns {Promise<PatternMap>} */
  map() { return this.to.call('memory', 'map', {}); }

  /** @param {{filter?: string, search?: string, offset?: number, limit?: number}} [given] @returns {Promise<Entries>} */
  log(given = {}) { return this.to.call('memory', 'log', given); }

  /** @param {{ids: string[]}} given @returns {Promise<void>} */
  removeLog(given) { return this.to.call('memory', 'removeLog', given); }

  /** @returns {Promise<Statistics>} */
  statistics() { return this.to.call('memory', 'statistics', {}); }

  /** @returns {Promise<Record<string, any>[]>} */
  policies() { return this.to.call('memory', 'policies', {}); }

  /** @param {{name: string, value: any}} given @returns {Promise<void>} */
  editPolicy(given) { return this.to.call('memory', 'editPolicy', given); }

  /** @param {{names: string[]}} given @returns {Promise<void>} */
  removePolicies(given) { return this.to.call('memory', 'removePolicies', given); }

  /** @returns {Promise<Record<string, any>[]>} */
  agents() { return this.to.call('memory', 'agents', {}); }

  /** @param {{fields: Record<string, any>}} given @returns {Promise<void>} */
  addAgent(given) { return this.to.call('memory', 'addAgent', given); }

  /** @param {{id: string, fields: Record<string, any>}} given @returns {Promise<void>} */
  editAgent(given) { return this.to.call('memory', 'editAgent', given); }

  /** @param {{id: string}} given @returns {Promise<void>} */
  removeAgent(given) { return this.to.call('memory', 'removeAgent', given); }

  /** @param {{id: string}} given @returns {Promise<void>} */
  restoreAgent(given) { return this.to.call('memory', 'restoreAgent', given); }

  /** @param {{id: string}} given @returns {Promise<void>} */
  resetAgent(given) { return this.to.call('memory', 'resetAgent', given); }

  /** @param {{passphrase?: string|null}} [given] @returns {Promise<Uint8Array<ArrayBuffer>>} */
  exportFile(given = {}) { return this.to.call('memory', 'exportFile', given); }

  /** @param {{data: Uint8Array<ArrayBuffer>, mode: 'merge'|'replace', passphrase?: string|null}} given @returns {Promise<ImportedItems|ImportedChatFile>} */
  importFile(given) { return this.to.call('memory', 'importFile', given); }

  /** @returns {Promise<number>} */
  removeUnreadable() { return this.to.call('memory', 'removeUnreadable', {}); }

  /** @returns {Promise<void>} */
  accept() { return this.to.call('memory', 'accept', {}); }

  /** @returns {Promise<void>} */
  deleteAll() { return this.to.call('memory', 'deleteAll', {}); }

  /** @param {{passphrase: string, old?: string|null}} given @returns {Promise<void>} */
  setPassphrase(given) { return this.to.call('memory', 'setPassphrase', given); }

  /** @param {{old: string}} given @returns {Promise<void>} */
  removePassphrase(given) { return this.to.call('memory', 'removePassphrase', given); }

  /** @param {{passphrase: string}} given @returns {Promise<void>} */
  unlock(given) { return this.to.call('memory', 'unlock', given); }
}

/** app/consolidation/api.py says what each call does. */
export class LearningCalls extends Calls {
  /** @param {{id: string}} given @returns {Promise<void>} */
  good(given) { return this.to.call('learning', 'good', given); }

  /** @param {{id: string}} given @returns {Promise<Judged>} */
  bad(given) { return this.to.call('learning', 'bad', given); }

  /** @param {{id: string}} given @returns {Promise<void>} */
  takeBack(given) { return this.to.call('learning', 'takeBack', given); }

  /** @param {{id: string, question: string, answer: string}} given @returns {Promise<TaughtLesson>} */
  shouldHaveSaid(given) { return this.to.call('learning', 'shouldHaveSaid', given); }

  /** @param {{id: string, question: string, answer: string}} given @returns {Promise<TaughtLesson>} */
  rememberAnswer(given) { return this.to.call('learning', 'rememberAnswer', given); }

  /** @param {{ids: string[]}} given @returns {Promise<Record<string, 'good'|'bad'|'corrected'>>} */
  opinions(given) { return this.to.call('learning', 'opinions', given); }

  /** @param {{question: string, answer: string}} given @returns {Promise<TaughtLesson>} */
  teach(given) { return this.to.call('learning', 'teach', given); }

  /** @param {{chat: string}} given @returns {Promise<void>} */
  offerNoMore(given) { return this.to.call('learning', 'offerNoMore', given); }

  /** @param {{id: string}} given @returns {Promise<void>} */
  undoTeaching(given) { return this.to.call('learning', 'undoTeaching', given); }

  /** @param {{id: string}} given @returns {Promise<LessonView|null>} */
  lesson(given) { return this.to.call('learning', 'lesson', given); }

  /** @param {{id: string}} given @returns {Promise<Story|null>} */
  lessonStory(given) { return this.to.call('learning', 'lessonStory', given); }

  /** @param {{filter?: 'now'|'off'|'history', search?: string, offset?: number, limit?: number}} [given] @returns {Promise<LessonPage>} */
  lessons(given = {}) { return this.to.call('learning', 'lessons', given); }

  /** @param {{id: string, question: string, answer: string}} given @returns {Promise<TaughtLesson>} */
  editLesson(given) { return this.to.call('learning', 'editLesson', given); }

  /** @param {{id: string, on: boolean}} given @returns {Promise<void>} */
  switchLesson(given) { return this.to.call('learning', 'switchLesson', given); }

  /** @param {{ids: string[]}} given @returns {Promise<void>} */
  forget(given) { return this.to.call('learning', 'forget', given); }

  /** @param {{ids: string[]}} given @returns {Promise<number>} */
  restore(given) { return this.to.call('learning', 'restore', given); }

  /** @returns {Promise<Overview>} */
  overview() { return this.to.call('learning', 'overview', {}); }

  /** @returns {Promise<AdapterView[]>} */
  adapters() { return this.to.call('learning', 'adapters', {}); }

  /** @param {{id: string, on: boolean}} given @returns {Promise<void>} */
  switchAdapter(given) { return this.to.call('learning', 'switchAdapter', given); }

  /** @param {{name: string}} given @returns {Promise<void>} */
  learnNow(given) { return this.to.call('learning', 'learnNow', given); }

  /** @returns {Promise<void>} */
  pause() { return this.to.call('learning', 'pause', {}); }

  /** @returns {Promise<void>} */
  resume() { return this.to.call('learning', 'resume', {}); }

  /** @param {{name: string, on: boolean}} given @returns {Promise<void>} */
  setLoop(given) { return this.to.call('learning', 'setLoop', given); }
}

/** app/files/api.py says what each call does. */
export class FilesCalls extends Calls {
  /** @param {{data: Uint8Array<ArrayBuffer>, chat: string|null, name: string, type: string, size: number}} given @returns {Promise<Attached>} */
  attach(given) { return this.to.call('files', 'attach', given); }

  /** @param {{chat: string}} given @returns {Promise<AttachedFile[]>} */
  files(given) { return this.to.call('files', 'files', given); }

  /** @param {{ids: string[]}} given @returns {Promise<void>} */
  detach(given) { return this.to.call('files', 'detach', given); }

  /** @param {{id: string}} given @returns {Promise<string>} */
  text(given) { return this.to.call('files', 'text', given); }

  /** @param {{id: string}} given @returns {Promise<TableLook|null>} */
  look(given) { return this.to.call('files', 'look', given); }
}

/** app/extraction/api.py says what each call does. */
export class TablesCalls extends Calls {
  /** @param {{text: string, columns: TableColumn[]}} given @returns {Promise<AsyncIterableIterator<TableNews>>} */
  extract(given) { return this.to.stream('tables', 'extract', given); }

  /** @returns {Promise<void>} */
  stop() { return this.to.call('tables', 'stop', {}); }
}

/** app/page/offered_tools.py says what each call does. */
export class ToolsCalls extends Calls {
  /** @param {{source: string, definitions: Record<string, any>[], seconds?: number|null}} given @returns {Promise<void>} */
  offer(given) { return this.to.call('tools', 'offer', given); }

  /** @returns {Promise<AsyncIterableIterator<ToolAsk>>} */
  asks() { return this.to.stream('tools', 'asks', {}); }

  /** @param {{id: string, text: string, failed: boolean}} given @returns {Promise<void>} */
  answer(given) { return this.to.call('tools', 'answer', given); }
}

/** app/page/model.py says what each call does. */
export class ModelCalls extends Calls {
  /** @param {{base?: string, idle?: number|null}} [given] @returns {Promise<void>} */
  openLearning(given = {}) { return this.to.call('model', 'openLearning', given); }

  /** @param {{name: string}} given @returns {Promise<void>} */
  forgetAdapter(given) { return this.to.call('model', 'forgetAdapter', given); }

  /** @returns {Promise<void>} */
  noteActivity() { return this.to.call('model', 'noteActivity', {}); }

  /** @param {{level: number, charging: boolean}} given @returns {Promise<void>} */
  noteBattery(given) { return this.to.call('model', 'noteBattery', given); }

  /** @returns {Promise<ModelMemory>} */
  memoryUse() { return this.to.call('model', 'memoryUse', {}); }
}

/** app/page/developer.py says what each call does. */
export class DeveloperCalls extends Calls {
  /** @param {{prompt: string, raw?: boolean, maxTokens?: number, temperature?: number, seed?: number, schema?: string|null, grammar?: string|null, regex?: string|null, after?: string|null, close?: boolean}} given @returns {Promise<Completion>} */
  generate(given) { return this.to.call('developer', 'generate', given); }

  /** @param {{messages: Record<string, any>[], tools: Record<string, any>[], choice?: any, maxTokens?: number, shaped?: boolean}} given @returns {Promise<CallsMade>} */
  calls(given) { return this.to.call('developer', 'calls', given); }

  /** @param {{prompt: string, raw?: boolean}} given @returns {Promise<Uint8Array<ArrayBuffer>>} */
  logits(given) { return this.to.call('developer', 'logits', given); }

  /** @returns {Promise<AsyncIterableIterator<Measured>>} */
  profile() { return this.to.stream('developer', 'profile', {}); }

  /** @returns {Promise<void>} */
  tune() { return this.to.call('developer', 'tune', {}); }

  /** @param {{on: boolean}} given @returns {Promise<void>} */
  speculate(given) { return this.to.call('developer', 'speculate', given); }
}

/** app/page/api_calls.py says what each call does. */
export class ApiCalls extends Calls {
  /** @param {{method: string, path: string, body?: string}} given @returns {Promise<AsyncIterableIterator<ApiPart>>} */
  request(given) { return this.to.stream('api', 'request', given); }
}
