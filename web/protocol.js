/** Made of app/protocol.py by the build (app/building/page_protocol.py): change it there. */

/**
 * A sentence, several, or a few words of one. text: the English, in which {name} stands for a value. A value is a text,
 * a message, a UserError, or a list; anything else becomes a text. str() gives the English.
 * @typedef {object} Message
 * @property {string} code
 * @property {string} text
 * @property {Record<string, any>} values
 */

/**
 * A pattern that is similar to a message. similarity: a cosine.
 * @typedef {object} RouteNeighbour
 * @property {string} id
 * @property {string} text
 * @property {string} agent
 * @property {number} similarity
 * @property {string} source
 */

/**
 * A lesson by its id, and the question that it answers.
 * @typedef {object} LessonName
 * @property {string} id
 * @property {string} question
 */

/**
 * A lesson that was compared with a message. confidence: the probability that it answers it.
 * @typedef {object} ConsideredLesson
 * @property {string} id
 * @property {string} question
 * @property {number} confidence
 */

/**
 * A passage that the model read. text: "" for a whole file; place: its pages, "" if it has none.
 * @typedef {object} Citation
 * @property {string} file
 * @property {string} name
 * @property {string} place
 * @property {string} text
 */

/**
 * A question with its answer.
 * @typedef {object} Fact
 * @property {string} question
 * @property {string} answer
 */

/**
 * Another tab or program has changed the stored conversation; gone: it deleted it.
 * @typedef {object} Changed
 * @property {'changed'} type
 * @property {boolean} gone
 */

/**
 * The agent that answers, and why. title: the agent's name. confidence: the probability that the first of `ranked` is
 * right for this message alone; below `threshold` the fallback answers. ranked: agents with the probability that each
 * is right. ms: of embed, search and decide; empty for a stored turn, like `neighbours`.
 * @typedef {object} Route
 * @property {'route'} type
 * @property {string} id
 * @property {string} text
 * @property {string} agent
 * @property {Message|string} title
 * @property {string} reason
 * @property {number} confidence
 * @property {number} threshold
 * @property {[string, number][]} ranked
 * @property {RouteNeighbour[]} neighbours
 * @property {Record<string, number>} ms
 */

/**
 * A lesson answers. considered: the lessons that were compared with the message, the best first. read: the lessons that
 * the model read, if the gate was not sure. A stored turn has neither `considered` nor `ms`.
 * @typedef {object} Recall
 * @property {'recall'} type
 * @property {string} id
 * @property {string} question
 * @property {number} confidence
 * @property {LessonName[]} read
 * @property {ConsideredLesson[]} considered
 * @property {number|null} ms
 */

/**
 * A tool gives the answer. kind: "arithmetic", "date", "unit", "count", "table" or "help". working: the method, in a
 * sentence or two.
 * @typedef {object} Computation
 * @property {'computation'} type
 * @property {string} kind
 * @property {string} words
 * @property {string} working
 */

/**
 * The passages of attached files that the model reads. found: "whole" files, or passages by "meaning" and words, or by
 * "words" alone.
 * @typedef {object} Citations
 * @property {'citations'} type
 * @property {Citation[]} passages
 * @property {'whole'|'meaning'|'words'} found
 */

/**
 * The message taught this. nll: nats per token of the answer before and after; None if the model learns it later. ms:
 * None for a stored turn. known: exactly the same was taught before.
 * @typedef {object} Taught
 * @property {'taught'} type
 * @property {string} id
 * @property {string} question
 * @property {string} answer
 * @property {number|null} ms
 * @property {number|null} nllBefore
 * @property {number|null} nllAfter
 * @property {boolean} known
 */

/**
 * Lessons that the answer shows: they were forgotten, one of them is to be chosen to forget, or they are all lessons.
 * new: the turn is not a stored one, so forgotten lessons can be restored.
 * @typedef {object} Card
 * @property {'card'} type
 * @property {'forgotten'|'choose'|'listed'} kind
 * @property {LessonName[]} lessons
 * @property {boolean} new
 */

/**
 * The contents of a prompt, in tokens: `system` (the system prompt), `memory` (what was learned), `turns` (messages
 * with the instructions of agents, and answers), `file` and `tools` fill the `total`, together with `free`, the rest
 * for the answer and what comes after it. leftOut: about how many tokens of turns did not fit. bytesPerToken: the
 * backend memory that a token of context takes.
 * @typedef {object} Context
 * @property {'context'} type
 * @property {number} system
 * @property {number} memory
 * @property {number} turns
 * @property {number} file
 * @property {number} tools
 * @property {number} free
 * @property {number} total
 * @property {number} leftOut
 * @property {number} bytesPerToken
 */

/**
 * The prompt is being read: `done` of `total` tokens, including the prefix that it shares with earlier turns.
 * secondsLeft: from now on; None while unknown.
 * @typedef {object} Reading
 * @property {'reading'} type
 * @property {number} done
 * @property {number} total
 * @property {number|null} secondsLeft
 */

/**
 * More text of the model's thinking before it answers. It is not part of the answer or of later prompts.
 * @typedef {object} Thought
 * @property {'thought'} type
 * @property {string} text
 */

/**
 * More text of the answer.
 * @typedef {object} Delta
 * @property {'delta'} type
 * @property {string} text
 */

/**
 * The places behind the answer so far that a model of diffusion writes now: a text, or None for a mask. The next Delta
 * takes their place.
 * @typedef {object} Canvas
 * @property {'canvas'} type
 * @property {(string|null)[]} places
 */

/**
 * The model calls a tool, which begins to run. id: of the call, within its answer.
 * @typedef {object} ToolCalled
 * @property {'tool-called'} type
 * @property {string} id
 * @property {string} name
 * @property {Record<string, any>} arguments
 */

/**
 * A call has ended. result: what the model reads of it, or a sentence on why it failed. seconds: None for a stored
 * turn.
 * @typedef {object} ToolReturned
 * @property {'tool-returned'} type
 * @property {string} id
 * @property {string} result
 * @property {boolean} failed
 * @property {number|null} seconds
 */

/**
 * The answer and the thought before it, which replace the text that was sent: without the repetitions of a loop, or
 * with the beginning of a continued answer.
 * @typedef {object} Replacement
 * @property {'replacement'} type
 * @property {string} text
 * @property {string} thought
 */

/**
 * The answer is complete. reason: "end" (the model stopped), "length" (max_tokens), "context" (no room left), "loop"
 * (it only repeated itself), "calls" (it could call no more tools, and answered from what it had) or "stopped" (by the
 * user). `text` is the whole answer, `thought` what it thought before: after a loop without the repeats. Seconds are
 * for the prompt's new tokens, for the answer's (its thought included), and for the thought. reusedTokens: of the
 * prompt, which had been read before. forgottenTurns: messages that no longer fit into the model's context and were
 * left out. adapter: the name of the adapter that the model answered with, "" for none.
 * @typedef {object} Done
 * @property {'done'} type
 * @property {string} reason
 * @property {number} promptTokens
 * @property {number} newTokens
 * @property {number} prefillTokS
 * @property {number} decodeTokS
 * @property {number} forgottenTurns
 * @property {number} thoughtSeconds
 * @property {number} reusedTokens
 */

/**
 * Question and answer are in the memory. answer: its stored text; "" for a stored turn, which has the text itself.
 * request: the answer's id, by which it can be judged; "" if no model made it. turns: how many are shown. question,
 * number: the numbers of the two turns.
 * @typedef {object} Stored
 * @property {'stored'} type
 * @property {string} chat
 * @property {number} turns
 * @property {string} answer
 * @property {string} request
 * @property {number|null} question
 * @property {number} number
 */

/**
 * Facts that the message told in passing, which the person may want to be remembered. chat: the conversation's id, None
 * if it is not stored.
 * @typedef {object} Offer
 * @property {'offer'} type
 * @property {string|null} chat
 * @property {Fact[]} lessons
 */

/**
 * The answer failed. kind: of the error. details: the traceback; None if `message` is written for users, which is only
 * a text if it is a traceback's last line or comes from JavaScript.
 * @typedef {object} Failure
 * @property {'failure'} type
 * @property {string} kind
 * @property {Message|string} message
 * @property {string|null} details
 */

/**
 * A stored turn as the page shows it. after: the number of the turn that it follows, None for a first turn. siblings:
 * the numbers of its variants including its own, the oldest first. created: seconds since 1970. events: of an answer.
 * @typedef {object} StoredTurn
 * @property {number} number
 * @property {number|null} after
 * @property {number[]} siblings
 * @property {string} role
 * @property {string} content
 * @property {number} created
 * @property {Event[]} events
 */

/**
 * Something that happens to a turn.
 * @typedef {Changed | Route | Recall | Computation | Citations | Taught | Card | Context | Reading | Thought | Delta |
 * Canvas | ToolCalled | ToolReturned | Replacement | Done | Stored | Offer | Failure} Event
 */

export {};
