/* A library that has the name of a language's runtime, and nothing else of one. */

int is_loaded = 1;
