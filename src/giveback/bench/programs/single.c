/* A program of one thread: it reads lines, keeps the words in a table, and now and then throws the table away.
 *
 * So it does what such programs do: getc, small blocks, strings that grow by realloc, now and then a buffer of
 * some pages, and a heap that grows and shrinks. An engine makes it multi-threaded, which turns glibc's
 * shortcuts for single-threaded programs off.
 *
 *   single [--rounds 60] [--trim] [--wait]
 */
#include "workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  LINES = 8000, /* a round */
  WORDS = 8, /* a line */
  BUCKETS = 16384,
  MOST_LETTERS = 24,
  BUFFER = 24 * 1024, /* an answer of so many bytes is built for each line */
  ANSWERS = 64, /* alive at a time */
};

struct word {
  struct word *next;
  uint64_t times;
  size_t length;
  char letters[];
};

static char *text;
static size_t text_length;

/* The same for each run: lines of words, short ones often. */
static void make_text(void) {
  const size_t most = (size_t)LINES * WORDS * (MOST_LETTERS + 1);
  uint64_t seed = UINT64_C(88172645463325252);
  text = (char *)new_pointers(most / sizeof(void *) + 1);
  for (size_t word = 0; word < (size_t)LINES * WORDS; ++word) {
    const size_t letters = 2 + (next_random(&seed) % (MOST_LETTERS - 1)) * (next_random(&seed) % 100) / 100;
    for (size_t i = 0; i < letters; ++i)
      text[text_length++] = (char)('a' + next_random(&seed) % (i < 2 ? 26 : 4));
    text[text_length++] = word % WORDS == WORDS - 1 ? '\n' : ' ';
  }
}

static struct word **find(struct word **table, const char *letters, size_t length) {
  uint64_t hash = UINT64_C(14695981039346656037);
  for (size_t i = 0; i < length; ++i)
    hash = (hash ^ (unsigned char)letters[i]) * UINT64_C(1099511628211);
  struct word **at = &table[hash % BUCKETS];
  while (*at != NULL && ((*at)->length != length || memcmp((*at)->letters, letters, length) != 0))
    at = &(*at)->next;
  return at;
}

static void count_word(struct word **table, const char *letters, size_t length) {
  struct word **at = find(table, letters, length);
  if (*at == NULL) {
    *at = allocate(sizeof **at + length);
    (*at)->next = NULL;
    (*at)->times = 0;
    (*at)->length = length;
    memcpy((*at)->letters, letters, length);
  }
  ++(*at)->times;
}

static void drop_table(struct word **table) {
  for (size_t i = 0; i < BUCKETS; ++i) {
    for (struct word *word = table[i]; word != NULL;) {
      struct word *next = word->next;
      free(word);
      word = next;
    }
  }
  free(table);
}

/* A line of any length, as getline would read it, letter by letter. NULL at the end. */
static char *read_line(FILE *file, size_t *length) {
  size_t room = 16;
  char *line = allocate(room);
  *length = 0;
  for (int letter = getc(file); letter != EOF; letter = getc(file)) {
    if (*length == room) {
      room *= 2;
      char *longer = realloc(line, room);
      if (longer == NULL)
        fail("out of memory");
      line = longer;
    }
    if (letter == '\n')
      return line;
    line[(*length)++] = (char)letter;
  }
  free(line);
  return NULL;
}

static uint64_t run_round(void **answers) {
  struct word **table = calloc(BUCKETS, sizeof *table);
  FILE *file = fmemopen(text, text_length, "r");
  if (table == NULL || file == NULL)
    fail("out of memory");
  uint64_t words = 0;
  size_t length;
  uint64_t lines = 0;
  for (char *line = read_line(file, &length); line != NULL; line = read_line(file, &length)) {
    for (size_t begin = 0, i = 0; i <= length; ++i) {
      if (i == length || line[i] == ' ') {
        count_word(table, line + begin, i - begin);
        begin = i + 1;
        ++words;
      }
    }
    const size_t slot = lines++ % ANSWERS;
    free(answers[slot]);
    answers[slot] = allocate(length * (BUFFER / (WORDS * (MOST_LETTERS + 1))));
    memset(answers[slot], 1, length);
    free(line);
  }
  (void)fclose(file);
  drop_table(table);
  return words;
}

int main(int argc, char **argv) {
  double rounds = 60;
  read_options(
      argc, argv,
      (const struct option_of_workload[]){{"--rounds", &rounds, NULL, NULL}, {NULL, NULL, NULL, NULL}});
  struct live_data live = {NULL, 0, 0};
  add_live(&live, BUFFER);
  make_text();
  void *answers[ANSWERS] = {NULL};
  uint64_t words = 0;
  const uint64_t began = now();
  for (size_t i = 0; i < (size_t)rounds; ++i)
    words += run_round(answers);
  report_seconds("run_s", now() - began);
  report("words", words);
  for (size_t i = 0; i < ANSWERS; ++i)
    free(answers[i]);
  show_freed();
  finish(&live, 1);
  return 0;
}
