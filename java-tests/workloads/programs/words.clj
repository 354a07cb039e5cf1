;; Builds a text from a small grammar, counts and sorts words and word pairs, and solves the nine queens with lazy
;; sequences: persistent maps, lazy sequences, dynamic calls and deep stacks.
;; Takes about 20 s of CPU time. Run with: java -cp '<clojure jars>' clojure.main words.clj [rounds]
(ns words
  (:require [clojure.string :as string]))

(def nouns ["timer" "thread" "stack" "frame" "queue" "sample" "clock" "signal" "method" "loop"])
(def verbs ["walks" "fills" "drains" "copies" "counts" "reads" "parks" "burns"])

(defn sentence [n]
  (string/join " " ["the" (nouns (mod (* n 7) 10)) (verbs (mod (* n 5) 8)) "the" (nouns (mod (quot n 3) 10)) (str "number" (mod (* n 31) 997))]))

(defn text [sentences]
  (map sentence (range sentences)))

(defn pairs [lines]
  (->> lines
       (mapcat #(partition 2 1 (string/split % #"\s+")))
       (reduce (fn [counts pair] (update counts (vec pair) (fnil inc 0))) {})))

(defn most [n counts]
  (take n (sort-by (fn [[word times]] [(- times) word]) counts)))

(defn safe? [column queens]
  (every? (fn [[distance other]]
            (and (not= column other) (not= distance (Math/abs (long (- column other))))))
          (map vector (rest (range)) queens)))

(defn queens [size]
  (nth (iterate (fn [boards]
                  (for [board boards column (range size) :when (safe? column board)]
                    (cons column board)))
                [[]])
       size))

(dotimes [round (Integer/parseInt (or (first *command-line-args*) "56"))]
  (let [lines (text 60000)
        words (frequencies (mapcat #(string/split % #"\s+") lines))]
    (println "round" round
             "most frequent" (first (first (most 3 words)))
             "pairs" (count (pairs lines))
             "boards" (count (queens 9)))))
