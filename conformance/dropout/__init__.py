"""Dropout in training, judged by what each draw reveals and against chance."""
