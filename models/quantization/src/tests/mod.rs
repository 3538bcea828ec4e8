mod arithmetic;
mod cosine;
mod half;
mod network;
