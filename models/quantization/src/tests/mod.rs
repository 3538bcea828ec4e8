mod arithmetic;
mod cosine;
mod network;
