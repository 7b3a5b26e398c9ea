/** The machine's graphics adapter, and a device of it. Runs in the worker. */

const SOFTWARE = /swiftshader|llvmpipe|lavapipe|basic render|software/i;
const LIMITS = ['maxStorageBufferBindingSize', 'maxBufferSize', 'maxComputeWorkgroupStorageSize',
                'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupSizeX', 'maxStorageBuffersPerShaderStage'];

/** The page's graphics adapter, or null if there is no WebGPU or no adapter. */
export async function findAdapter() {
  return await navigator.gpu?.requestAdapter({ powerPreference: 'high-performance' }) ?? null;
}

/** True if an adapter is a program on the CPU. */
export function isSoftware({ info }) {
  return Boolean(info.isFallbackAdapter) || SOFTWARE.test(wordsOf(info).join(' '));
}

/** A device with all features and limits of its adapter. */
export function openDevice(adapter) {
  return adapter.requestDevice({
    requiredFeatures: ['subgroups', 'timestamp-query'].filter((name) => adapter.features.has(name)),
    requiredLimits: Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]])),
  });
}

/** AdapterInfo of py_core/backends/webgpu/host.py, without the limits. */
export function describeAdapter(adapter, device) {
  const { info } = adapter;
  return {
    vendor: info.vendor, architecture: info.architecture, device: info.device, description: info.description,
    name: info.description || wordsOf(info).join(' ') || 'unnamed GPU',
    software: isSoftware(adapter),
    subgroupSize: device.features.has('subgroups') ? info.subgroupMinSize : 0,
    integerDot: Boolean(navigator.gpu.wgslLanguageFeatures?.has('packed_4x8_integer_dot_product')),
  };
}

function wordsOf(info) {
  return [info.vendor, info.architecture, info.device, info.description].filter(Boolean);
}
