mod cosine;
mod network;
mod rounding;
