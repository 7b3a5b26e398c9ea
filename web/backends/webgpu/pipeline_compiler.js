/** Compiles compute shaders in parallel, so that the sixty of a model take only as long as the slowest. */
export class PipelineCompiler {
  #device;
  #compiling = [];  // promises since the last `finish`
  #refused = /** @type {string|null} */ (null);  // why the first failed shader was refused

  constructor(device) {
    this.#device = device;
  }

  /**
   * A kernel that may be recorded at once; its `pipeline` is there after `compiled`.
   * @param {string} access 'r' or 'w' for each storage binding in order
   */
  compile(code, access, label) {
    const device = this.#device;
    const entries = [...access].map((mode, binding) => ({
      binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: mode === 'w' ? 'storage' : 'read-only-storage' },
    }));
    const layout = device.createBindGroupLayout({ entries });
    const kernel = { layout, pipeline: null };
    kernel.compiled = device.createComputePipelineAsync({
      label, layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
      compute: { module: device.createShaderModule({ code, label }), entryPoint: 'main' },
    }).then((pipeline) => { kernel.pipeline = pipeline; }, (error) => { this.#refused ??= `${label}: ${error.message}`; });
    this.#compiling.push(kernel.compiled);
    return kernel;
  }

  /** Waits for all of them. Returns why a shader was refused since the last call, or null. */
  async finish() {
    await Promise.all(this.#compiling);
    const refused = this.#refused;
    this.#compiling = [];
    this.#refused = null;
    return refused;
  }
}
