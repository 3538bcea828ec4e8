mod attention;
mod batch_norms;
mod support;
