mod skeletons;
mod support;
