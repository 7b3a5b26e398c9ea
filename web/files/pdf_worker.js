/** PDF.js in its worker, with bounds on what it unpacks. */
import './pdf_limits.js';
import '../vendor/pdf/pdf.worker.min.mjs';
