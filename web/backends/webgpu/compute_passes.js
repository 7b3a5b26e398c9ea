/** Encodes recorded lists of dispatches, and measures how long they take by the GPU's own clock. */

/** @param {GPUComputePassEncoder} pass @param {{kernel: {pipeline}, group, x, y, z}[][]} lists */
export function encodeLists(pass, lists) {
  let current = /** @type {object|null} */ (null);
  for (const list of lists) {
    for (const { kernel, group, x, y, z } of list) {
      if (kernel !== current) {
        pass.setPipeline(kernel.pipeline);
        current = kernel;
      }
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(x, y, z);
    }
  }
}

/**
 * Seconds that each list takes, run times[i] times in a pass of its own; undefined if the GPU has no timestamps.
 * @returns {Promise<number[]|undefined>}
 */
export async function profileLists(device, lists, times) {
  if (!device.features.has('timestamp-query')) return undefined;
  const count = 2 * lists.length;
  const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const queries = device.createQuerySet({ type: 'timestamp', count });
  const resolved = device.createBuffer({ size: 8 * count, usage: QUERY_RESOLVE | COPY_SRC });
  const staging = device.createBuffer({ size: 8 * count, usage: MAP_READ | COPY_DST });
  const encoder = device.createCommandEncoder();
  lists.forEach((list, index) => {
    const timestampWrites = {
      querySet: queries, beginningOfPassWriteIndex: 2 * index, endOfPassWriteIndex: 2 * index + 1,
    };
    const pass = encoder.beginComputePass({ timestampWrites });
    encodeLists(pass, Array(times[index]).fill(list));
    pass.end();
  });
  encoder.resolveQuerySet(queries, 0, count, resolved, 0);
  encoder.copyBufferToBuffer(resolved, 0, staging, 0, 8 * count);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const ticks = new BigInt64Array(staging.getMappedRange().slice(0));
  for (const resource of [queries, resolved, staging]) resource.destroy();
  return lists.map((_, index) => Math.max(0, Number(ticks[2 * index + 1] - ticks[2 * index])) * 1e-9);
}
