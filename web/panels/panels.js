/**
 * The panels and their parts. Each part is a class in its own file, loaded when it is first chosen:
 *
 *   new Part(root: HTMLElement, memory, {engine, learning, onResume, page})
 *   show(): each time it is chosen   hide(): each time it is left   refresh(): optional; the memory has changed while it is
 *   visible
 *
 * While the memory is locked every part is a form that unlocks it, except those that work `whileLocked`, and those that do not
 * depend on it: they are `always` there, even if no engine could be started, and stay when another engine starts. `page` is
 * what they work with.
 *
 * @typedef {{name: string, whileLocked?: boolean, always?: boolean, load: () => Promise<any>}} Part title: panel.tab_NAME of the texts
 */

/** @type {Record<string, Part[]>} by the panel's name, whose title is panel.NAME of the texts */
export const PANELS = {
  learned: [
    { name: 'lessons', load: async () => (await import('./learned/learned_panel.js')).LearnedPanel },
    { name: 'learning', load: async () => (await import('./learning/learning_panel.js')).LearningPanel },
    { name: 'routing', load: async () => (await import('./routing/routing_panel.js')).RoutingPanel },
    { name: 'map', load: async () => (await import('./map/map_panel.js')).MapPanel },
    { name: 'log', load: async () => (await import('./log/log_panel.js')).LogPanel },
  ],
  agents: [{ name: 'agents', load: async () => (await import('./agents/agents_panel.js')).AgentsPanel }],
  settings: [
    { name: 'model', always: true, load: async () => (await import('./settings/model_part.js')).ModelPart },
    { name: 'answers', load: async () => (await import('./settings/answers_part.js')).AnswersPart },
    { name: 'loops', load: async () => (await import('./settings/learning_part.js')).LearningPart },
    { name: 'appearance', always: true, load: async () => (await import('./settings/appearance_part.js')).AppearancePart },
    { name: 'storage', whileLocked: true, load: async () => (await import('./storage/storage_panel.js')).StoragePanel },
  ],
};
